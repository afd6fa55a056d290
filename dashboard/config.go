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
// The functions may be called concurrently. No lock is held during a call.
type Config struct {
	// Title is shown in the head of each page, for example the address of the store. It
	// must not contain credentials.
	Title string

	// Glob selects the names that are shown at all: *, ?, [a-z], and \ to quote. The default
	// is "*". With an invalid glob, each page reports the error.
	Glob string

	// Every is the pause between two polls of the store. The default is 1s, and the least
	// value 100ms. The store is polled only while somebody watches, unless Record is called.
	Every time.Duration

	// Timeout is the limit of one request to the store. The default is 1s.
	Timeout time.Duration

	// Allow reports whether a request may revoke leases. If it is nil, none may. It is also
	// called for a page, which then has links to the form. Who sent the request, and how that
	// is known, is up to the program.
	Allow func(*http.Request) bool

	// Doctor checks the server, for example with checkup.Examine. It is called at
	// most once a minute, with a context of 30s, in a goroutine of its own. If it is nil,
	// there are no findings.
	Doctor func(context.Context) (checkup.Findings, error)

	// User names the sender of a request that revokes, for the log and the events of the name.
	// If it is nil, that is the address of the client.
	User func(*http.Request) string

	// Revoked is called after each revocation, for example for an audit log. The answer to
	// the request waits for it.
	Revoked func(*http.Request, Revocation)
}

// A Revocation is a lease, or a foreign lock, that was ended by a request.
type Revocation struct {
	Name   string    // of the lock; hostile input, as each name
	Holder string    // host, process and label of the holder; safe to print
	Fence  uint64    // of the lease; zero if it was not known, and for a foreign lock
	User   string    // who has sent the request, as Config.User says
	Reason string    // as typed, one line
	Did    string    // of a foreign lock: what was done; else empty
	At     time.Time // when the store had confirmed it

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
