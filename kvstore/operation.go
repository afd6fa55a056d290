package kvstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A verb is a method of driver.Store as named in error messages.
type verb string

const (
	acquire       verb = "acquire"
	resize        verb = "resize"
	reserveFences verb = "reserve fences"
	cancel        verb = "cancel"
	revoke        verb = "revoke"
	release       verb = "release"
	extend        verb = "extend"
	notifyWanted  verb = "notify wanted"
	inspect       verb = "inspect"
	list          verb = "list"
	expire        verb = "expire" // by a service, for itself
)

// An Operation is a store request, such as an Acquire, that reads or changes the state of locks. It
// also contains the request's result. Tables can run an Operation again, for example after a
// conflict: the last run's result counts. An Operation must not be used after Do returns.
type Operation struct {
	verb  verb
	until time.Time

	// The request; the verb determines which field is set.
	acquire driver.AcquireRequest // for acquire, resize and cancel
	fences  driver.FenceRequest
	release driver.ReleaseRequest
	revoke  driver.RevokeRequest
	wanted  driver.WantedRequest
	extend  []driver.ExtendRequest
	name    string   // for expire, and for extend if all its requests are for the same name
	names   []string // for inspect
	pattern string   // for list

	// The result.
	reply    driver.AcquireReply
	reserved driver.FenceReply
	done     bool // released, revoked or wanted
	errs     []error
	states   []driver.State
	listed   []string
	err      error
}

// Run runs the operation on a table, and changes the table. The table must contain at least the
// locks on the operation's Names. Run returns the notifications. The caller must store the table
// first, and then send them.
func (o *Operation) Run(t *Table, now Now) (notifications []Notification) {
	switch o.verb {
	case acquire:
		o.reply, notifications, o.err = t.Acquire(o.acquire, now)
	case resize:
		o.reply, notifications = t.Resize(o.acquire, now)
	case reserveFences:
		o.reserved, notifications = t.ReserveFences(o.fences, now)
	case cancel:
		notifications = t.Cancel(o.acquire, now)
	case release:
		o.done, notifications = t.Release(o.release, now)
	case revoke:
		o.done, notifications = t.Revoke(o.revoke, now)
	case notifyWanted:
		o.done, notifications = t.NotifyWanted(o.wanted, now)
	case extend:
		o.errs = t.Extend(o.extend, now)
	case inspect:
		o.states = t.InspectAll(o.names, now)
	case list:
		o.listed, o.err = t.List(o.pattern, now)
	case expire:
		notifications = t.Expire(now)
	}
	return notifications
}

// Verb returns the store method as named in error messages.
func (o *Operation) Verb() string { return string(o.verb) }

// Name returns the name in error messages, which is empty if the operation concerns several.
func (o *Operation) Name() string {
	switch o.verb {
	case acquire, resize, cancel:
		return o.acquire.Name
	case reserveFences:
		return o.fences.Name
	case release:
		return o.release.Name
	case revoke:
		return o.revoke.Name
	case notifyWanted:
		return o.wanted.Name
	case extend, expire:
		return o.name
	case inspect:
		if len(o.names) == 1 {
			return o.names[0]
		}
	}
	return ""
}

// Names returns the names whose locks the operation can read and change, or all if it reads all
// names.
func (o *Operation) Names() (names []string, all bool) {
	switch o.verb {
	case acquire, resize, cancel:
		return o.acquire.Names(), false
	case extend:
		names = make([]string, 0, len(o.extend))
		for _, r := range o.extend {
			names = append(names, r.Name)
		}
		return names, false
	case inspect:
		return o.names, false
	case list:
		return nil, true
	}
	return []string{o.Name()}, false
}

// ReadOnly reports whether the operation changes nothing.
func (o *Operation) ReadOnly() bool { return o.verb == inspect || o.verb == list }

// Acquired returns an Acquire's request and reply, or false for another operation.
func (o *Operation) Acquired() (r driver.AcquireRequest, reply driver.AcquireReply, ok bool) {
	return o.acquire, o.reply, o.verb == acquire
}

// Acquires reports whether the operation is an Acquire.
func (o *Operation) Acquires() bool { return o.verb == acquire }

// Deadline returns the time limit for the operation: its own limit or ctx's deadline.
func (o *Operation) Deadline(ctx context.Context) time.Time {
	end := driver.DeadlineOf(ctx)
	if _, bounded := ctx.Deadline(); !o.until.IsZero() && (!bounded || o.until.Before(end)) {
		return o.until
	}
	return end
}

// final reports whether the client acts on the result as if nothing could follow for this token.
func (o *Operation) final() bool {
	return o.verb == cancel || o.verb == release || slices.Contains(o.errs, driver.ErrLost)
}

// byHolder reports whether the operation comes from a client that holds the name, or held it.
func (o *Operation) byHolder() bool {
	switch o.verb {
	case release, extend, cancel, resize, reserveFences, notifyWanted:
		return true
	}
	return false
}

// operations are reused, so an operation in memory allocates nothing for its request.
var operations = sync.Pool{New: func() any { return new(Operation) }}

// newOperation returns an empty operation, which the caller frees.
func newOperation(v verb, until time.Time) *Operation {
	o := operations.Get().(*Operation)
	o.verb, o.until = v, until
	return o
}

func (o *Operation) free() {
	*o = Operation{}
	operations.Put(o)
}
