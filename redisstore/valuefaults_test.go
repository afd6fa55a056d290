package redisstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// A release in a batch should not end another token's lock if that token ends with the released
// token, after as many bytes as a fence and a space.
func TestCoalescedReleaseOfAnotherToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const made = "host:1:client:lease"
	for _, before := range []string{"request-12345678:", "5 region-eu-west-", "1234567890123456-"} {
		server.MustCmd(t, "SET", "lock:n", before+made, "PX", "60000")
		_, statuses := coalescedCall(t, server, "", "n "+made+" 0")
		if server.MustCmd(t, "GET", "lock:n") == nil {
			t.Errorf("%s: the lock of another token was deleted, status %s", before, statuses)
		}
	}
}

// A client with an attached lease should be notified when it is revoked, by token and by fence.
func TestAttachedLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"token", "fence"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			first, second := dibs.New(open(t, server)), dibs.New(open(t, server))
			defer first.Close()
			defer second.Close()
			other, err := lockMutex(t.Context(), second, "other")
			if err != nil {
				t.Fatal(err)
			}
			receivesEvents(t, server, string(other.Token()))
			lease, err := lockMutex(t.Context(), first, "n")
			if err != nil {
				t.Fatal(err)
			}
			attached, err := second.Attach(t.Context(), lease.Handle())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Detach(); err != nil {
				t.Fatal(err)
			}
			r := driver.RevokeRequest{Name: "n", Token: string(lease.Token())}
			if by == "fence" {
				r.Token, r.Fence = "", lease.Fence()
			}
			if ok, err := open(t, server).Revoke(t.Context(), r); !ok || err != nil {
				t.Fatal(ok, err)
			}
			select {
			case <-attached.Context().Done():
			case <-time.After(10 * time.Second): // its next renewal is due after 20 s
				t.Error("the holder is not notified")
			}
		})
	}
}

// A holder with its own token whose request was repeated should be notified when it is revoked.
func TestRepeatedTryIsRevoked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	r := p.request("n")
	r.Token, r.Queue = "worker", false
	p.mustAcquire(r)
	p.mustAcquire(r) // the first reply was lost
	if ok, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: r.Token}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	wantEvent(t, p, driver.EventRevoked)
}

// A repeated acquire for several names should keep the request for notification about waiters.
func TestRepeatedMultiLockIsWanted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	r := p.request("{a}1")
	r.With = []string{"{a}2"}
	p.mustAcquire(r)
	if _, err := p.s.NotifyWanted(t.Context(), driver.WantedRequest{Name: r.Name, Token: r.Token, Client: r.Client}); err != nil {
		t.Fatal(err)
	}
	p.mustAcquire(r) // a late copy
	p.mustWait(p.request("{a}1"))
	wantEvent(t, p, driver.EventWanted)
}

func wantEvent(t *testing.T, p *testClient, kind driver.EventKind) (e driver.Event) {
	t.Helper()
	deadline := time.After(generous)
	for {
		select {
		case e = <-p.events:
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			t.Fatalf("no event of kind %d", kind)
		}
	}
}

// A lock renewed by its own client keeps its fence, even if another client changed its weight, or
// if two requests for its token were merged.
func TestRenewedLockKeepsItsFence(t *testing.T) {
	t.Parallel()
	for what, acquire := range map[string]func(t *testing.T, server *redistest.Server, p *testClient) (token string, fence uint64){
		"resized by another client": func(t *testing.T, _ *redistest.Server, p *testClient) (string, uint64) {
			r := p.request("n")
			r.Limit = 7
			p.mustAcquire(r)
			other := r
			other.Client, other.Weight, other.Until = "host:9:another", 7, time.Now().Add(generous)
			reply, err := p.s.Resize(t.Context(), other)
			if err != nil || !reply.Held {
				t.Fatal(reply, err)
			}
			return r.Token, reply.Fence
		},
		"merged requests": func(t *testing.T, server *redistest.Server, p *testClient) (string, uint64) {
			const token, until = "host:1:client:lease", "99999999999999999"
			p.client = "host:1:client"
			server.MustCmd(t, "EVAL", wire.Plain().Acquire.Text, "5", "n", "{n}"+queue, "{n}"+meta, highwaters+"{50693}", "{n}"+shared,
				"1", token, "60000", until, "", "", "", token, "60000", until, "", "", "")
			return token, p.inspect("n").Holders[0].Fence
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := watchingClient(t, open(t, server, redisstore.Prefix("")))
			token, fence := acquire(t, server, p)
			extend := func() {
				t.Helper()
				r := driver.ExtendRequest{Name: "n", Token: token, Client: p.client, Fence: fence, TTL: time.Minute, Weight: 1, Limit: 1}
				if err := p.s.Extend(t.Context(), []driver.ExtendRequest{r})[0]; err != nil {
					t.Fatal(err)
				}
			}
			extend()
			server.MustCmd(t, "DEL", "{n}"+meta) // as if the metadata had expired: the client's renewals do not extend them
			extend()
			if state := p.inspect("n"); len(state.Holders) != 1 || state.Holders[0].Fence != fence {
				t.Errorf("%+v, want the fence %d", state.Holders, fence)
			}
			if ok, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: fence}); !ok || err != nil {
				t.Error("not revoked by its fence", ok, err)
			}
		})
	}
}

// A text that the scripts would divide into a fence and a token is rejected as a token.
func TestTokenThatLooksLikeAValue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	for _, number := range []string{"0", "5", "018446744073709551616", "99999999999999999999999"} {
		r := p.request("n")
		r.Token, r.Until = number+" host:1:c:l", time.Now().Add(generous)
		if _, err := p.s.Acquire(t.Context(), r); err == nil {
			t.Errorf("token %q was accepted", r.Token)
		}
	}
}

// The event about a revocation by token should have at least the lease's fence: otherwise its
// holder would take it for an earlier lease's.
func TestRevocationOfARaisedFence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	r := p.request("n")
	raised := p.mustAcquire(r) + 1_000_000_000_000
	extension := driver.ExtendRequest{Name: "n", Token: r.Token, Client: p.client, Fence: raised, TTL: time.Minute, Weight: 1, Limit: 1}
	if err := p.s.Extend(t.Context(), []driver.ExtendRequest{extension})[0]; err != nil {
		t.Fatal(err)
	}
	if ok, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: r.Token}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if e := wantEvent(t, p, driver.EventRevoked); e.Fence < raised {
		t.Errorf("%+v, want a fence of at least %d", e, raised)
	}
}
