package main

import (
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/monitor"
)

// A session is a Client on an opened store whose outages are reported: for the subcommands
// that acquire locks.
type session struct {
	con     *console
	signals signals
	store   *opened
	monitor *monitor.Monitor
	locks   *dibs.Client // on the monitored store
	outer   []string     // see heldVar
}

// showReport prints a report of the store: a line, or an event with --json.
func showReport(con *console, r monitor.Report) {
	con.event(r.Event(time.Now()))
	con.logf("%s", r.Text())
}

// logVerbose prints a line on stderr, behind the pending reports, if --verbose is set.
func (s *session) logVerbose(format string, args ...any) {
	if s.con.verbose {
		s.monitor.Write(func() { s.con.logf(format, args...) })
	}
}

// close releases all leases and closes the store. If the store is unreachable, it waits
// for --timeout at most: leases that cannot be released expire.
func (s *session) close() error {
	s.monitor.Close()
	done := make(chan error, 1)
	go func() { done <- errors.Join(s.locks.Close(), s.store.close()) }()
	var limit <-chan time.Time
	if s.monitor.CurrentOutage() > 0 {
		limit = time.After(s.store.timeout)
	}
	select {
	case err := <-done:
		return err
	case <-limit:
		return nil
	}
}
