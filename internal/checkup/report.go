// Package checkup is what the doctors of the databases share: how findings are collected, the clock of
// a server, and a smoke test of a store.
package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dibslock/dibs/driver"
)

// A Report collects findings. It is not safe for concurrent use.
type Report struct {
	Ctx   context.Context // of all checks
	Found driver.Findings
}

// Find adds a finding.
func (r *Report) Find(severity driver.Severity, subject, what, consequence, remedy string) {
	r.Found = append(r.Found, driver.Finding{Severity: severity, Subject: subject, What: what, Consequence: consequence, Remedy: remedy})
}

// A Candidate is a finding that is reported if Applies is set.
type Candidate struct {
	Applies                            bool
	Severity                           driver.Severity
	Subject, What, Consequence, Remedy string
}

// If returns a candidate.
func If(applies bool, severity driver.Severity, subject, what, consequence, remedy string) Candidate {
	return Candidate{applies, severity, subject, what, consequence, remedy}
}

// AddAll adds all candidates that apply.
func (r *Report) AddAll(candidates ...Candidate) {
	for _, c := range candidates {
		if c.Applies {
			r.Find(c.Severity, c.Subject, c.What, c.Consequence, c.Remedy)
		}
	}
}

// AddFirst adds the first candidate that applies.
func (r *Report) AddFirst(candidates ...Candidate) {
	if i := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Applies }); i >= 0 {
		r.AddAll(candidates[i])
	}
}

// Unchecked adds a query that has failed, with what it was for. It reports whether there was an
// error.
func (r *Report) Unchecked(subject, what string, err error) bool {
	if err == nil {
		return false
	}
	if r.Ctx.Err() == nil { // otherwise the interruption is a finding of its own
		r.Find(driver.Unchecked, subject, "a query failed: "+err.Error(), "not checked: "+what, "see the error")
	}
	return true
}

// Findings returns all findings, the most severe first, after the checks have ended.
func (r *Report) Findings() driver.Findings {
	if r.Ctx.Err() != nil {
		r.Find(driver.Unchecked, "unfinished", fmt.Sprintf("the checks were not finished: %v", context.Cause(r.Ctx)),
			"there may be more problems", "give Check more time")
	}
	slices.SortStableFunc(r.Found, func(a, b driver.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return r.Found
}
