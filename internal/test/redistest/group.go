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
	agreeTimeout = 30 * time.Second       // for several servers to agree
	replyTimeout = 500 * time.Millisecond // for a server's reply
)

// startAll starts servers in parallel and stops them with the test.
func startAll(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	forEach(servers, func(i int, s *Server) { _, errs[i] = start(s) })
	t.Cleanup(func() {
		forEach(servers, func(i int, s *Server) {
			if errs[i] == nil {
				s.Stop()
			}
		})
		for i, s := range servers {
			if errs[i] == nil {
				logOnFailure(t, s)
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			skipOrFail(t, err)
		}
	}
}

// logOnFailure prints a server's log if the test failed.
func logOnFailure(t testing.TB, s *Server) {
	t.Helper()
	if log := s.Log(); t.Failed() && log != "" {
		t.Logf("redis-server on %s logged:\n%s", s.Addr(), log)
	}
}

// forEach calls f for all servers at once.
func forEach(servers []*Server, f func(i int, s *Server)) {
	var calls sync.WaitGroup
	for i, s := range servers {
		calls.Go(func() { f(i, s) })
	}
	calls.Wait()
}

// replicationArgs returns arguments for a master or replica. Synchronization starts at once, and a
// stopping server does not wait for replicas, because they may be paused.
func replicationArgs(args []string) []string {
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

// waitUntil polls until a condition holds, for at most agreeTimeout. There is no event to
// wait for: each process learns of changes in its own time.
func waitUntil(what string, holds func(context.Context) error) error {
	return waitUntilFor(agreeTimeout, what, holds)
}

// waitUntilFor returns the last failed condition, not the error of a request interrupted when the
// wait ends.
func waitUntilFor(d time.Duration, what string, holds func(context.Context) error) error {
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
			return fmt.Errorf("redistest: timed out after %v waiting until %s: %w", d, what, missing)
		case <-tick.C:
		}
	}
}

// query is Cmd with a short timeout, for a server that may be down or paused.
func (s *Server) query(ctx context.Context, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	c := s.dial()
	defer c.Close()
	value, err := c.Call(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %q: %w", s.Addr(), args, err)
	}
	return value, nil
}

// queryText is query for a string reply.
func (s *Server) queryText(ctx context.Context, args ...string) (string, error) {
	value, err := s.query(ctx, args...)
	if err != nil {
		return "", err
	}
	text, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%s: unexpected reply to %q: %v", s.Addr(), args, value)
	}
	return text, nil
}

// running reports whether the latest process is running; it may be paused.
func (s *Server) running() bool {
	select {
	case <-s.proc.Load().Exited:
		return false
	default:
		return true
	}
}

// runningServers returns the running servers.
func runningServers(servers []*Server) (running []*Server) {
	for _, s := range servers {
		if s.running() {
			running = append(running, s)
		}
	}
	return running
}

// without returns the servers except the given server.
func without(gone *Server, servers []*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool { return s == gone })
}

// find returns the server with an address.
func find(servers []*Server, addr string) (*Server, error) {
	for _, s := range servers {
		if s.Addr() == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server of this group has address %s", addr)
}

// addrs returns the servers' addresses.
func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

var errUnknownServer = errors.New("redistest: the server is not part of this group")
