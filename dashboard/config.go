package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// A Config configures a dashboard. The zero value shows all names, and is read-only.
//
// The functions can be called concurrently. No lock is held during a call.
type Config struct {
	// Title is shown in the head of each page, for example the store's address. It must not contain
	// credentials.
	Title string

	// Glob selects the names to show at all: *, ?, [a-z], and \ to quote. The default is "*". With
	// an invalid glob, each page reports the error.
	Glob string

	// Every is the pause between two polls. The default is 1s, and the least value 100ms. The store
	// is polled only while somebody watches, unless Record is called.
	Every time.Duration

	// Timeout limits each request to the store. The default is 1s.
	Timeout time.Duration

	// Allow reports whether a request may revoke leases. If it is nil, no request may. It is also
	// called for a page, which then contains links to the form. Authentication is the program's
	// responsibility.
	Allow func(*http.Request) bool

	// Doctor checks the server, for example with checkup.Examine. It is called at most once a
	// minute, with a time limit of 30s in its context, in its own goroutine. If it is nil, there
	// are no findings.
	Doctor func(context.Context) (checkup.Findings, error)

	// User names the sender of a revoking request, for the log and the name's events. If it is nil,
	// the client's address is used.
	User func(*http.Request) string

	// Revoked is called after each revocation, for example for an audit log. The answer to
	// the request waits for it.
	Revoked func(*http.Request, Revocation)
}

// A Revocation is a lease, or a foreign lock, that a request ended.
type Revocation struct {
	Name   string    // the lock's name; hostile input, like each name
	Holder string    // the holder's host, process and label; safe to print
	Fence  uint64    // the lease's fence; zero if unknown, and for a foreign lock
	User   string    // the request's sender, from Config.User
	Reason string    // as typed, on a single line
	Did    string    // how a foreign lock was ended; otherwise empty
	At     time.Time // when the store confirmed the end

	ended view.Holder
}

// withDefaults returns the configuration without zero values.
func (c Config) withDefaults() Config {
	const leastEvery = 100 * time.Millisecond
	if c.Glob == "" {
		c.Glob = "*"
	}
	if c.Every <= 0 {
		c.Every = time.Second
	}
	c.Every = max(c.Every, leastEvery)
	if c.User == nil {
		c.User = func(r *http.Request) string { return r.RemoteAddr }
	}
	if c.Timeout <= 0 {
		c.Timeout = driver.OperationTimeout
	}
	return c
}

// allows reports whether a request may revoke.
func (c Config) allows(r *http.Request) bool { return c.Allow != nil && c.Allow(r) }
