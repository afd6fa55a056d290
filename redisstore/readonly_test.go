package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// A user with read permissions should see the states of all names except those it may not read,
// which should be listed with the reason.
func TestReadOnlyUser(t *testing.T) {
	t.Parallel()
	const mayRead = "%R~lock:open* %R~{lock:open*}:dibs:* %R~dibs:fence:* "
	for name, rights := range map[string]string{
		"scripts that read": mayRead + "+@read +time +evalsha_ro +eval_ro",
		"all commands":      mayRead + "+@all",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("one server", func(t *testing.T) {
				t.Parallel()
				observe(t, redistest.Start(t), rights)
			})
			t.Run("cluster", func(t *testing.T) {
				t.Parallel()
				observe(t, redistest.StartClusterNode(t), rights+" +cluster|info", redisstore.HiddenCluster())
			})
		})
	}
}

func observe(t *testing.T, server *redistest.Server, rights string, options ...redisstore.Option) {
	redistest.SkipBefore7(t, server) // no read permissions for a key
	locks := dibs.New(open(t, server, options...), dibs.TTL(time.Minute))
	t.Cleanup(func() { locks.Close() })
	hold := func(l *dibs.Lease, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	hold(locks.Mutex("open-mutex").TryLock(t.Context()))
	hold(locks.Semaphore("open-permits", 3).Permits(2).TryLock(t.Context()))
	hold(locks.RWMutex("open-reader").Reader().TryLock(t.Context()))
	hold(locks.Mutex("closed-mutex").TryLock(t.Context()))
	hold(locks.Semaphore("closed-permits", 3).Permits(2).TryLock(t.Context()))
	server.MustCmd(t, "RPUSH", "lock:open-data", "x")
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default", "reset", "on", "nopass"}, strings.Fields(rights)...)...)

	s := open(t, server, options...)
	observer := dibs.New(s)
	t.Cleanup(func() { observer.Close() })
	for range 2 { // the second time the user's permissions are known
		var listed []string
		for state, err := range observer.List(t.Context(), "*") {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, state.Name)
			isClosed := strings.HasPrefix(state.Name, "closed")
			if isClosed && (state.Err == nil || !strings.Contains(state.Err.Error(), "NOPERM") || len(state.Holders) > 0) || !isClosed && (state.Err != nil || len(state.Holders) != 1) {
				t.Errorf("%+v", state)
			}
		}
		if len(listed) != 5 {
			t.Errorf("listed %q", listed)
		}
		for _, name := range []string{"open-mutex", "open-permits", "open-reader"} {
			if state, err := s.Inspect(t.Context(), name); err != nil || len(state.Holders) != 1 {
				t.Errorf("%q: %+v, %v", name, state, err)
			}
		}
		var refused *driver.UnavailableError
		if _, err := s.Inspect(t.Context(), "closed-permits"); !errors.As(err, &refused) || !refused.Refused || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("a forbidden name: %v", err)
		}
		var wrong *driver.WrongTypeError
		if _, err := s.Inspect(t.Context(), "open-data"); !errors.As(err, &wrong) || wrong.State.Foreign == nil || wrong.State.Foreign.Type != "list" {
			t.Errorf("data: %v", err)
		}
	}
	if _, err := observer.Mutex("open-free").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
		t.Errorf("it locks: %v", err)
	}
}

// A user that may not call the script at all gets a single error, not an error for each name.
func TestUserWithoutScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := dibs.New(open(t, server))
	t.Cleanup(func() { locks.Close() })
	if _, err := locks.Semaphore("a", 2).Permits(1).TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.MustCmd(t, "ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "+@read")
	for _, err := range dibs.New(open(t, server)).List(t.Context(), "*") {
		if !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v", err)
		}
	}
}
