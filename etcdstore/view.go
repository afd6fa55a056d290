package etcdstore

import (
	"context"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An interest is an entry whose client waits for a change of the queue: for the entry's grant or, if
// wanted, for a waiter behind the holder.
type interest struct {
	in     *inbox.Inbox
	rec    record
	wanted bool
}

// A view is a queue as this process sees it, by a single watch. It lasts while entries have an
// interest in it. views guards it.
type view struct {
	name      string
	interests map[*interest]bool
	live      bool // the queue is known
	queue     queue
	revision  int64
	end       context.CancelFunc
}

// views are the views of this process. They are safe for concurrent use.
type views struct {
	s *Store

	mu  sync.Mutex
	all map[string]*view
}

func newViews(s *Store) *views { return &views{s: s, all: make(map[string]*view)} }

// add adds an interest. It returns a function that removes it.
func (vs *views) add(i *interest) (remove func()) {
	name := i.rec.name
	vs.mu.Lock()
	v := vs.all[name]
	if v == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(i.in.Context)) // with its metadata: the same connection
		v = &view{name: name, interests: make(map[*interest]bool), end: cancel}
		vs.all[name] = v
		go vs.run(ctx, v)
	}
	for other := range v.interests {
		if other.rec.key == i.rec.key && other.wanted == i.wanted {
			delete(v.interests, other) // a repeated call
		}
	}
	v.interests[i] = true
	var send []func()
	if v.live && v.revision >= i.rec.created {
		send = vs.check(v, i)
	}
	vs.mu.Unlock()
	for _, f := range send {
		f()
	}
	return func() { vs.remove(name, i) }
}

// remove removes an interest.
func (vs *views) remove(name string, i *interest) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.all[name]; v != nil {
		vs.drop(v, i)
	}
}

// removeInbox removes the interests of a client.
func (vs *views) removeInbox(in *inbox.Inbox) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, v := range vs.all {
		for i := range v.interests {
			if i.in == in {
				vs.drop(v, i)
			}
		}
	}
}

// drop removes an interest, and ends a view without any. The caller holds the lock.
func (vs *views) drop(v *view, i *interest) {
	delete(v.interests, i)
	if len(v.interests) == 0 && vs.all[v.name] == v {
		delete(vs.all, v.name)
		v.end()
	}
}

// run watches a queue until its view ends.
func (vs *views) run(ctx context.Context, v *view) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		if vs.watch(ctx, v) {
			pause = firstPause
		}
		sleep(ctx, pause)
	}
}

// watch follows a queue until its watch fails. It reports whether it read the queue.
func (vs *views) watch(ctx context.Context, v *view) (read bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := vs.s.keys.queue(v.name)
	for reply := range vs.s.cli.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if reply.Err() != nil {
			return read
		}
		if reply.Created {
			if read = vs.read(ctx, v); !read {
				return false
			}
		}
		for len(reply.Events) > 0 {
			n := 1
			for n < len(reply.Events) && reply.Events[n].Kv.ModRevision == reply.Events[0].Kv.ModRevision {
				n++
			}
			vs.apply(v, prefix, reply.Events[:n])
			reply.Events = reply.Events[n:]
		}
	}
	return read
}

// read reads the whole queue.
func (vs *views) read(ctx context.Context, v *view) bool {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	q, revision, err := vs.s.read(ctx, v.name)
	if err != nil {
		return false
	}
	vs.change(v, revision, func() { v.queue, v.live = q, true })
	return true
}

// apply applies the events of a revision.
func (vs *views) apply(v *view, prefix string, events []*clientv3.Event) {
	revision := events[0].Kv.ModRevision
	vs.change(v, revision, func() {
		for _, e := range events {
			if i := v.queue.findKey(string(e.Kv.Key)); i >= 0 {
				v.queue = append(v.queue[:i:i], v.queue[i+1:]...)
			}
			if e.Type != mvccpb.Event_PUT {
				continue
			}
			if added, ok := newEntry(prefix, e.Kv); ok {
				v.queue = append(v.queue, added)
			}
		}
		v.queue.sort()
	})
}

// change changes a queue, unless the view is newer, and notifies those concerned.
func (vs *views) change(v *view, revision int64, change func()) {
	vs.mu.Lock()
	if v.live && revision <= v.revision {
		vs.mu.Unlock()
		return
	}
	reserved := v.queue.reserved()
	v.revision = revision
	change()
	var send []func()
	if v.queue.reserved() > reserved {
		send = vs.retryFirst(v)
	}
	for i := range v.interests {
		send = append(send, vs.check(v, i)...)
	}
	vs.mu.Unlock()
	for _, f := range send {
		f()
	}
}

// reserved returns how many entries are reservations.
func (q queue) reserved() (n int) {
	for _, e := range q {
		if e.Reserved {
			n++
		}
	}
	return n
}

// retryFirst notifies the first waiter to retry, because a holder released its lease and keeps the
// name unavailable.
func (vs *views) retryFirst(v *view) (send []func()) {
	first := v.queue.granted()
	if first == len(v.queue) {
		return nil
	}
	for i := range v.interests {
		if i.rec.key == v.queue[first].key && !i.wanted {
			send = append(send, func() { i.in.Send(driver.Event{Kind: driver.EventRetry, Token: i.rec.token}) })
		}
	}
	return send
}

// check returns the notifications for an interest, and removes it then. The caller holds the lock.
func (vs *views) check(v *view, i *interest) (send []func()) {
	at := v.queue.findKey(i.rec.key)
	missing := at < 0 || v.queue[at].created != i.rec.created
	switch {
	case missing && i.rec.created > v.revision:
		return nil // the view is older
	case missing && i.wanted:
	case missing:
		vs.s.endWait(i.rec)
		vs.s.fences.doubt()
		send = append(send, func() { i.in.Send(driver.Event{Kind: driver.EventRetry, Token: i.rec.token}) })
	case i.wanted && len(v.queue.waiters()) > 0:
		send = append(send, func() { i.in.Send(driver.Event{Kind: driver.EventWanted, Token: i.rec.token}) })
	case !i.wanted && at < v.queue.granted():
		fence := vs.s.fences.seen(v.revision, at)
		send = append(send, func() { vs.s.granted(i.in, i.rec, fence, false) })
	default:
		return nil
	}
	vs.drop(v, i)
	return send
}
