// Package checkup examines whether the servers of a store are suitable for locks:
//
//	found, err := checkup.Examine(ctx, store)
//
// A Finding is a check's result. The other types are for store authors, whose Examine runs the
// checks.
package checkup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

const (
	longest      = 30 * time.Second       // for an examination
	longestCheck = 15 * time.Second       // for a single check
	grace        = 200 * time.Millisecond // for checks that were cut short to report it
)

// A Report collects the findings of an examination. It is safe for concurrent use: Collect can return
// while a client that ignores its context is still busy.
type Report struct {
	mu       sync.Mutex
	found    Findings
	reached  bool     // a server replied
	failures failures // why other servers did not
}

// Collect calls examine, which visits the servers of a store, and returns the findings. It returns soon
// after ctx ends, and within 30 s. The error means that no server was reached.
func Collect(ctx context.Context, examine func(context.Context, *Report) error) (Findings, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r, ended := new(Report), make(chan error, 2)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { ended <- context.Cause(ctx) })
	})()
	go func() { ended <- cmp.Or(examine(ctx, r), context.Cause(ctx)) }()
	return r.end(<-ended)
}

// Visited records a server's reply, or with an error its failure to reply.
func (r *Report) Visited(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached, r.failures = r.reached || err == nil, r.failures.with(err)
}

// end returns the findings. cut is the error for an examination cut short, or nil.
func (r *Report) end(cut error) (Findings, error) {
	r.mu.Lock()
	reached, why := r.reached, append(failures(nil).with(cut), r.failures...)
	r.mu.Unlock()
	if !reached {
		if len(why) == 0 {
			why = why.with(errors.New("the client knows no server"))
		}
		return nil, unreachable(why)
	}
	if cut != nil {
		r.add(Finding{
			Severity: Unchecked, Subject: "unfinished", What: fmt.Sprintf("the checks were not finished: %v", cut),
			Consequence: "there may be more problems", Remedy: "give Examine more time, and check that the client reaches every server",
		})
	}
	return r.Findings(), nil
}

// unreachable returns the error for a store if none of its servers replied.
func unreachable(cause error) error {
	if errors.Is(cause, driver.ErrInvalid) {
		return fmt.Errorf("doctor: %w", cause)
	}
	result := &driver.UnavailableError{Op: "doctor", Cause: cause}
	var u *driver.UnavailableError
	if errors.As(cause, &u) {
		result.Cause, result.Refused = u.Cause, u.Refused
	}
	return result
}

func (r *Report) add(f Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, f)
}

// Findings returns all findings until now: the most severe first, then by server, then by check.
func (r *Report) Findings() Findings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(r.found), func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Node, b.Node))
	})
}

// failures are the errors of several servers. Their text is a single line, with each text once.
type failures []error

func (f failures) with(err error) failures {
	if err == nil {
		return f
	}
	return append(f, err)
}

func (f failures) Error() string {
	var texts []string
	for _, err := range f {
		if text := err.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func (f failures) Unwrap() []error { return f }
