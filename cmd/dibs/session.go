package main

import (
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/monitor"
)

// A session is a Client on an opened store with reported outages: for the subcommands that acquire
// locks.
type session struct {
	con      *console
	signals  signals
	store    *opened
	monitor  *monitor.Monitor
	options  []dibs.Option  // for locks
	locks    *dibs.Client   // on the monitored store
	replaced sync.WaitGroup // clients being closed
	outer    []string       // see heldVar
}

func (s *session) newClient() *dibs.Client { return dibs.New(s.monitor.Store(), s.options...) }

// reconnect replaces the client, which ends its subscription. The old client holds no lease. It may
// have to cancel a request that arrives late, so close waits for it.
func (s *session) reconnect() {
	old := s.locks
	s.replaced.Go(func() { _ = old.Close() }) // fails only if the store is away, which the caller knows
	s.locks = s.newClient()
}

// showReport prints a report about the store: a line, or an event with --json.
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

// close releases all leases and closes the store. If the store is unreachable, it waits for
// --timeout at most: leases that cannot be released expire.
func (s *session) close() error {
	s.monitor.Close()
	done := make(chan error, 1)
	go func() {
		err := s.locks.Close()
		s.replaced.Wait()
		done <- errors.Join(err, s.store.close())
	}()
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
