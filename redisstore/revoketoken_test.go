package redisstore_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// receivesEvents waits until a token's client is subscribed.
func receivesEvents(t *testing.T, server *redistest.Server, token string) {
	t.Helper()
	client := strings.Join(strings.SplitN(token, ":", 4)[:3], ":")
	p := &testClient{t: t}
	p.eventually("the subscription of "+client, func() bool {
		reply, _ := server.MustCmd(t, "PUBSUB", "NUMSUB", "dibs:c:"+client).([]any)
		return len(reply) == 2 && reply[1] == int64(1)
	})
}

// wantRevoked waits until a lease ends, and checks the reason.
func wantRevoked(t *testing.T, l *dibs.Lease, message string) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(generous):
		t.Fatal("the context is open")
	}
	var lost *dibs.LostError
	if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || lost.Reason != dibs.ReasonRevoked || lost.Message != message {
		t.Errorf("%v, want that it was revoked: %s", cause, message)
	}
}

// A lease's token should revoke it. The reason should arrive at its holder, and the next waiter
// should hold the lock.
func TestRevokeByToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	const reason = "the host is gone"
	for what, test := range map[string]struct {
		hold, wait func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error)
	}{
		"mutex": {lockMutex, lockMutex},
		"writer": {func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
			return locks.RWMutex(name).Writer().Lock(ctx)
		}, lockReader},
		"reader": {lockReader, lockMutex},
		"permit": {func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
			return locks.Semaphore(name, 4).Permits(2).Lock(ctx)
		}, lockMutex},
		"multi-lock": {func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
			return locks.All([]string{name, name + " too"}).Lock(ctx)
		}, lockMutex},
		"chosen token": {func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
			return locks.Mutex(name).Lock(ctx, dibs.OwnerToken("request-"+name))
		}, lockMutex},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locks := dibs.New(open(t, server))
			defer locks.Close()
			name := strings.ReplaceAll(what, " ", "-")
			probe, err := lockMutex(t.Context(), locks, name+"-probe")
			if err != nil {
				t.Fatal(err)
			}
			receivesEvents(t, server, string(probe.Token()))
			l, err := test.hold(t.Context(), locks, name)
			if err != nil {
				t.Fatal(err)
			}
			if state, err := s.Inspect(t.Context(), name); err != nil || len(state.Holders) != 1 || state.Holders[0].Token != string(l.Token()) || state.Holders[0].Fence != l.Fence() {
				t.Fatalf("%+v, %v", state, err)
			}
			next := make(chan error, 1)
			go func() {
				waiter, err := test.wait(t.Context(), locks, name)
				if err == nil {
					err = waiter.Unlock()
				}
				next <- err
			}()
			(&testClient{t: t}).eventually("the waiter", func() bool {
				state, err := s.Inspect(t.Context(), name)
				return err == nil && state.Waiting == 1
			})
			if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: name, Token: string(l.Token()), Reason: reason}); !revoked || err != nil {
				t.Fatal(revoked, err)
			}
			wantRevoked(t, l, reason)
			if err := <-next; err != nil {
				t.Errorf("the waiter: %v", err)
			}
			if err := l.Unlock(); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("unlock: %v, want ErrLost", err)
			}
			if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: name, Token: string(l.Token())}); revoked || err != nil {
				t.Errorf("once more: %v, %v", revoked, err)
			}
			if err := probe.Unlock(); err != nil {
				t.Errorf("another lease of the client: %v", err)
			}
		})
	}
}

func lockMutex(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
	return locks.Mutex(name).Lock(ctx)
}

func lockReader(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
	return locks.RWMutex(name).Reader().Lock(ctx)
}

// A token that does not hold the name changes nothing: another name's, or a waiter's. The token
// of a released lease frees a reserved name.
func TestRevokeByWrongToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	held, waits, elsewhere, reserved := p.request("mutex"), p.request("mutex"), p.request("elsewhere"), p.request("reserved")
	p.mustAcquire(held)
	p.mustWait(waits)
	p.mustAcquire(elsewhere)
	reader := p.sharedRequest("readers", 1, 3, time.Minute)
	p.mustAcquire(reader)
	p.mustAcquire(p.sharedRequest("readers", 1, 3, time.Minute))
	p.mustAcquire(reserved)
	if ok, err := p.s.Release(t.Context(), driver.ReleaseRequest{Name: "reserved", Token: reserved.Token, Reserve: time.Minute, Until: time.Now().Add(generous)}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	tokens := []string{
		elsewhere.Token, waits.Token, "nobody", "=", "!", held.Token[:len(held.Token)-1], held.Token + " ", reader.Token + " reserved",
		"dibs:shared 2", "dibs:shared ",
	}
	for _, name := range []string{"mutex", "readers", "reserved", "free"} {
		before := p.inspect(name)
		for _, token := range tokens {
			if revoked, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: name, Token: token}); revoked || err != nil {
				t.Errorf("%s, token %q: %v, %v", name, token, revoked, err)
			}
		}
		if have, want := fieldsOf(roundTimes(p.inspect(name))), fieldsOf(roundTimes(before)); !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %+v, want %+v", name, have, want)
		}
	}
	if revoked, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "reserved", Token: reserved.Token}); !revoked || err != nil {
		t.Errorf("the token of a reserved name: %v, %v", revoked, err)
	}
	if state := p.inspect("reserved"); len(state.Holders) > 0 {
		t.Errorf("%+v, want a free name", state)
	}
}

// Revoke should not end another library's lock, although Inspect shows its value as a token.
func TestRevokeByForeignToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	for _, token := range []string{someUUID, symfonyToken, "17", "ADDED:2026-11-24T10:00:00.123Z@web-1:" + someUUID} {
		server.MustCmd(t, "SET", "n", token, "PX", "60000")
		if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: token}); revoked || err != nil {
			t.Errorf("token %q: %v, %v", token, revoked, err)
		}
		if have := server.MustCmd(t, "GET", "n"); have != token {
			t.Errorf("the key has %q, want %q", have, token)
		}
	}
	server.MustCmd(t, "DEL", "n")
	write(t, server, rlock)
	revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: redissonClient + ":40"})
	wantIs(t, "a lock of Redisson", err, dibs.ErrWrongType)
	if have := server.MustCmd(t, "HGET", "n", redissonClient+":40"); revoked || have != "1" {
		t.Errorf("a lock of Redisson: %v, the count is %v", revoked, have)
	}
}

// A lateRevocations is a store whose revocation notifications arrive on delivery.
type lateRevocations struct {
	*driver.Full

	mu   sync.Mutex
	late []func()
}

func (s *lateRevocations) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return s.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Kind != driver.EventRevoked {
			on(e)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.late = append(s.late, func() { on(e) })
	})
}

// arrived returns the notifications received since its last call.
func (s *lateRevocations) arrived() []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.late
	s.late = nil
	return late
}

// A late notification about a revocation by token must not end a later lease with the same token.
func TestLateRevocationByToken(t *testing.T) {
	t.Parallel()
	for what, hold := range map[string]func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error){
		"mutex": func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
			return locks.Mutex(name).Lock(ctx, dibs.OwnerToken("request-1"))
		},
		"reader": func(ctx context.Context, locks *dibs.Client, name string) (*dibs.Lease, error) {
			return locks.RWMutex(name).Reader().Lock(ctx, dibs.OwnerToken("request-1"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := &lateRevocations{Full: driver.Complete(open(t, server))}
			locks := dibs.New(s)
			defer locks.Close()
			probe, err := lockMutex(t.Context(), locks, "probe")
			if err != nil {
				t.Fatal(err)
			}
			receivesEvents(t, server, string(probe.Token()))
			first, err := hold(t.Context(), locks, "n")
			if err != nil {
				t.Fatal(err)
			}
			if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: string(first.Token()), Reason: "late"}); !revoked || err != nil {
				t.Fatal(revoked, err)
			}
			var late []func()
			(&testClient{t: t}).eventually("the notification", func() bool { late = s.arrived(); return len(late) > 0 })
			if err := first.Unlock(); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("unlock of the first: %v", err)
			}
			second, err := hold(t.Context(), locks, "n")
			if err != nil {
				t.Fatal(err)
			}
			for _, deliver := range late {
				deliver()
			}
			if err := second.Err(); err != nil || second.Context().Err() != nil {
				t.Errorf("the second: %v", err)
			}
			if err := second.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("extend of the second: %v", err)
			}
			// A revocation of the second one has its effect.
			if revoked, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: string(second.Token()), Reason: "now"}); !revoked || err != nil {
				t.Fatal(revoked, err)
			}
			(&testClient{t: t}).eventually("the notification", func() bool { late = s.arrived(); return len(late) > 0 })
			for _, deliver := range late {
				deliver()
			}
			wantRevoked(t, second, "now")
		})
	}
}
