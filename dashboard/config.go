package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// A Config configures a dashboard. The zero Config shows all names, and allows no revocation.
//
// Several goroutines can call the functions at once. The dashboard holds no mutex during a call.
type Config struct {
	// Title is a text at the top of each page, for example the store's address. It must not contain
	// credentials.
	Title string

	// Glob selects the names that the dashboard can show: *, ?, [a-z], and \ to quote. The default is
	// "*", all names. With an invalid glob, each page reports the error.
	Glob string

	// Every is the pause between two polls of the store. The default is 1s; a smaller value than 100ms
	// means 100ms. The dashboard polls only for open pages, for other requests such as /metrics, and
	// while Record runs.
	Every time.Duration

	// Timeout limits each request to the store. The default is 1s.
	Timeout time.Duration

	// Allow reports whether a request may revoke leases. If Allow is nil, no request may. For a page's
	// request, Allow decides whether the page contains links to the revocation form. The dashboard
	// does no authentication: the program must do it.
	Allow func(*http.Request) bool

	// Doctor checks the server and returns its findings, for example with checkup.Examine. The
	// dashboard calls Doctor at most once a minute, in its own goroutine, with a context that ends
	// after 30s. If Doctor is nil, there are no findings.
	Doctor func(context.Context) (checkup.Findings, error)

	// User returns the user who sent a revocation request. The events on the lock's name and
	// Revocation.User contain the result. If User is nil, the result is the HTTP client's address.
	User func(*http.Request) string

	// Revoked is called after each revocation, for example for an audit log. The response to the
	// request is sent after Revoked returns.
	Revoked func(*http.Request, Revocation)
}

// A Revocation describes a lease, or another library's lock, that a dashboard request ended.
type Revocation struct {
	Name   string    // the lock's name; can contain any text, so escape it
	Holder string    // the holder's host, process and label; safe to print
	Fence  uint64    // the lease's fence; zero if unknown, or for another library's lock
	User   string    // the request's sender, from Config.User
	Reason string    // the text that the user typed, a single line
	Did    string    // how another library's lock was ended; empty for a lease
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
