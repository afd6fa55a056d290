package checkup

import (
	"context"
	"fmt"
	"slices"
)

// A Server examines a single server.
type Server struct {
	*Report
	Ctx  context.Context // the running check's context
	Addr string          // the server's address; empty for a single server
}

// A Check is a single check of a server.
type Check struct {
	Name string
	Run  func()
}

// Run runs checks in order, each for up to 15 s. A longer check is a finding, and the others
// follow.
func (s *Server) Run(checks ...Check) {
	all := s.Ctx
	defer func() { s.Ctx = all }()
	for _, check := range checks {
		if all.Err() != nil {
			return // Examine reports it as a finding
		}
		s.run(all, check)
	}
}

func (s *Server) run(all context.Context, check Check) {
	ctx, cancel := context.WithTimeout(all, longestCheck)
	defer cancel()
	s.Ctx = ctx
	check.Run()
	if ctx.Err() != nil && all.Err() == nil {
		s.Find(Unchecked, "unfinished", fmt.Sprintf("the check %q did not end within %v", check.Name, longestCheck),
			"there may be more problems", "find out why the server is slow, and check it again")
	}
}

// Find adds a finding.
func (s *Server) Find(severity Severity, subject, what, consequence, remedy string) {
	s.AddAll(If(true, severity, subject, what, consequence, remedy))
}

// If returns a finding, or none if it does not apply.
func If(applies bool, severity Severity, subject, what, consequence, remedy string) Findings {
	if !applies {
		return nil
	}
	return Findings{{Severity: severity, Subject: subject, What: what, Consequence: consequence, Remedy: remedy}}
}

// AddAll adds findings about the server.
func (s *Server) AddAll(found ...Findings) {
	for _, f := range slices.Concat(found...) {
		f.Node = s.Addr
		s.add(f)
	}
}

// AddFirst adds only the first finding.
func (s *Server) AddFirst(found ...Findings) {
	if all := slices.Concat(found...); len(all) > 0 {
		s.AddAll(all[:1])
	}
}

// Unchecked adds a failed query, with its purpose. It reports whether an error occurred.
func (s *Server) Unchecked(subject, what string, err error) bool {
	if err == nil {
		return false
	}
	if s.Ctx.Err() == nil { // otherwise the interruption is a separate finding
		s.Find(Unchecked, subject, "a query failed: "+err.Error(), "not checked: "+what, "see the error")
	}
	return true
}
