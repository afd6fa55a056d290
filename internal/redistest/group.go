package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	settleWithin = 30 * time.Second       // for several servers to agree
	answerWithin = 500 * time.Millisecond // for one to say what it thinks
)

// attendAll starts servers side by side and stops them with the test.
func attendAll(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	each(servers, func(i int, s *Server) { _, errs[i] = start(s) })
	t.Cleanup(func() {
		each(servers, func(i int, s *Server) {
			if errs[i] == nil {
				s.Stop()
			}
		})
		for i, s := range servers {
			if errs[i] == nil {
				quote(t, s)
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			giveUp(t, err)
		}
	}
}

// quote shows the log of a server whose test has failed.
func quote(t testing.TB, s *Server) {
	t.Helper()
	if log := s.Log(); t.Failed() && log != "" {
		t.Logf("redis-server on %s logged:\n%s", s.Addr(), log)
	}
}

// each calls f for all servers at once.
func each(servers []*Server, f func(i int, s *Server)) {
	var calls sync.WaitGroup
	for i, s := range servers {
		calls.Go(func() { f(i, s) })
	}
	calls.Wait()
}

// replicating are the arguments of a server that has replicas or is one.
// Synchronization starts at once, and a server that is stopped does not wait for
// a replica that may be paused.
func replicating(args []string) []string {
	all := []string{
		"--repl-diskless-sync", "yes",
		"--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1",
		"--shutdown-timeout", "0",
	}
	if password := password(args); password != "" {
		all = append(all, "--masterauth", password)
	}
	return append(all, args...)
}

// await polls until a condition holds, for at most settleWithin. There is no
// event to wait for: each process learns the news in its own time.
func await(what string, holds func(context.Context) error) error {
	return awaitFor(settleWithin, what, holds)
}

// awaitFor tells what was missing last, and not that a question was cut short by
// the end of the wait.
func awaitFor(d time.Duration, what string, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var missing error
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if missing == nil || ctx.Err() == nil {
			missing = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redistest: still waiting after %v until %s: %w", d, what, missing)
		case <-tick.C:
		}
	}
}

// ask is Cmd for a server that may be gone or paused: it gives up soon.
func (s *Server) ask(ctx context.Context, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	c := s.dial()
	defer c.Close()
	value, err := c.Call(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %q: %w", s.Addr(), args, err)
	}
	return value, nil
}

// askText is ask for a reply that is a string.
func (s *Server) askText(ctx context.Context, args ...string) (string, error) {
	value, err := s.ask(ctx, args...)
	if err != nil {
		return "", err
	}
	text, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%s: %q gave %v", s.Addr(), args, value)
	}
	return text, nil
}

// running tells whether the latest process has not ended; it may be paused.
func (s *Server) running() bool {
	select {
	case <-s.proc.Load().exited:
		return false
	default:
		return true
	}
}

// alive are the servers that run.
func alive(servers []*Server) (running []*Server) {
	for _, s := range servers {
		if s.running() {
			running = append(running, s)
		}
	}
	return running
}

// without are the servers but one.
func without(gone *Server, servers []*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool { return s == gone })
}

// find is the server with an address.
func find(servers []*Server, addr string) (*Server, error) {
	for _, s := range servers {
		if s.Addr() == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server here is at %s", addr)
}

// addrs are the addresses of servers.
func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

var errStranger = errors.New("redistest: the server belongs to somebody else")
