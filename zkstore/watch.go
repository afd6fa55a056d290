package zkstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
)

// Watch implements driver.Store. It watches the letters of revocations. The grants for the client's
// waiters come from their own watches.
func (s *Store) Watch(ctx context.Context, client string, _ func() bool, on func(driver.Event)) error {
	switch {
	case s == nil || s.sessions == nil:
		return errNoServers
	case s.invalid != nil:
		return s.invalid
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := inbox.New(ctx, on)
	s.inboxes.Add(client, in)
	defer func() {
		s.inboxes.Remove(client, in)
		cancel()
		s.views.removeInbox(in)
		in.Close()
	}()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begin := time.Now()
		err := s.watchLetters(ctx, client, in)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(begin) > longestPause {
			pause = firstPause
		}
		in.Send(driver.Event{Kind: driver.EventDisconnected, Err: unavailable("watch", "", err)})
		sleep(ctx, pause)
	}
}

// Pauses before a watch begins again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchLetters delivers revocations until the connection ends.
func (s *Store) watchLetters(ctx context.Context, client string, in *inbox.Inbox) error {
	l, err := s.connect(ctx)
	if err != nil {
		return err
	}
	for connected := false; ; {
		ready, _, changed := l.state()
		if !ready {
			return errNoServer
		}
		fired, err := s.readLettersSoon(ctx, l, client, in)
		if err != nil {
			return err
		}
		if !connected {
			connected = true
			in.Send(driver.Event{Kind: driver.EventConnected})
		}
		select {
		case <-fired:
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Store) readLettersSoon(ctx context.Context, l *link, client string, in *inbox.Inbox) (<-chan struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	return s.readLetters(ctx, l, client, in)
}

// connect returns the control, after the base of the fences was read.
func (s *Store) connect(ctx context.Context) (*link, error) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	return s.sessions.get(ctx)
}
