package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// wantValue checks the content of a lock's key.
func wantValue(t *testing.T, server *redistest.Server, what, name, want string) {
	t.Helper()
	if have := server.MustCmd(t, "GET", name); have != want {
		t.Errorf("%s: the value is %q, want %q", what, have, want)
	}
}

// Each granting script writes its returned fence before the token. A user's token is the whole
// value, and its record lives as long.
func TestValueOfALock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own token %v", own), func(t *testing.T) {
			t.Parallel()
			p := watchingClient(t, s)
			request := func(name string) driver.AcquireRequest {
				r := p.request(fmt.Sprintf("%s-%v", name, own))
				if own {
					r.Token = fmt.Sprintf("worker-%d", p.seq)
				}
				return r
			}
			want := func(what string, r driver.AcquireRequest, name string, fence uint64) {
				t.Helper()
				value := fmt.Sprintf("%d %s", fence, r.Token)
				if own {
					value = r.Token
				}
				wantValue(t, server, what, name, value)
				lock, _ := server.MustCmd(t, "PTTL", name).(int64)
				if record, _ := server.MustCmd(t, "PTTL", "{"+name+"}"+meta).(int64); own && record < lock-1000 {
					t.Errorf("%s: the lock expires in %d ms, its record in %d ms", what, lock, record)
				}
				if state := p.inspect(name); len(state.Holders) != 1 || state.Holders[0].Token != r.Token || state.Holders[0].Fence != fence {
					t.Errorf("%s: %+v, want the token %s with the fence %d", what, state.Holders, r.Token, fence)
				}
			}
			first := request("n")
			want("acquire", first, first.Name, p.mustAcquire(first))
			fence := p.mustAcquire(first)
			want("acquire again", first, first.Name, fence)
			for range 40 { // a release serves the queue in two ways
				next := request("n")
				p.mustWait(next)
				p.mustRelease(first, fence)
				e := p.nextEvent()
				if e.Kind != driver.EventGranted || e.Token != next.Token {
					t.Fatalf("%+v, want the grant of %s", e, next.Token)
				}
				want("hand-off", next, next.Name, e.Fence)
				first, fence = next, e.Fence
			}
			several := request("a")
			several.With = []string{several.Name + "b", several.Name + "c"}
			for _, what := range []string{"several names", "several names again"} {
				fence = p.mustAcquire(several)
				for _, name := range several.Names() {
					want(what, several, name, fence)
				}
			}
			reader := request("reader")
			reader.Limit = 7
			p.mustAcquire(reader)
			reader.Weight, reader.Until = 7, time.Now().Add(generous)
			reply, err := p.s.Resize(t.Context(), reader)
			if err != nil || !reply.Held {
				t.Fatal(reply, err)
			}
			want("resize", reader, reader.Name, reply.Fence)
			voted := request("voted")
			voted.Until = time.Now().Add(generous)
			for i, what := range []string{"vote", "vote again"} {
				voted.Vote = &driver.Vote{Ticket: 7, Fence: 1 << 52 << i}
				reply, err := s.Acquire(t.Context(), voted)
				if err != nil || !reply.Held || reply.Fence < 1<<52<<i {
					t.Fatal(reply, err)
				}
				want(what, voted, voted.Name, reply.Fence)
			}
			if ok, err := p.s.Release(t.Context(), driver.ReleaseRequest{Name: reader.Name, Token: reader.Token, Fence: reply.Fence, Reserve: time.Minute}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if state := p.inspect(reader.Name); len(state.Holders) != 1 || !state.Holders[0].Reserved || state.Holders[0].Fence != reply.Fence {
				t.Errorf("reserved: %+v, want the fence %d", state.Holders, reply.Fence)
			}
		})
	}
}

// A value that only contains a token should be another owner's lock: only a number and a space
// before a dibs token are no part of it.
func TestAnotherValueWithTheToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	made := p.request("n")
	worker := made
	worker.Token = "worker"
	for _, c := range []driver.AcquireRequest{made, worker} {
		values := []string{"5" + c.Token, "5x " + c.Token, "x " + c.Token, "5  " + c.Token, "5 6 " + c.Token, "5 " + c.Token + "x", c.Token + " 5", c.Token + "5", c.Token + " reserved", "dibs:shared " + c.Token}
		if c.Token == worker.Token {
			values = append(values, "5 "+c.Token)
		}
		for _, value := range values {
			server.MustCmd(t, "SET", "n", value, "PX", "600000")
			if reply := p.acquire(c); reply.Held {
				t.Errorf("%q: acquired by the token %s", value, c.Token)
			}
			if err := p.s.Cancel(t.Context(), c); err != nil {
				t.Errorf("%q: cancel: %v", value, err)
			}
			for _, fence := range []uint64{0, 5} {
				held, err := p.s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: c.Token, Fence: fence, Until: time.Now().Add(generous)})
				if held || err != nil {
					t.Errorf("%q: release of %s with fence %d: %v, %v", value, c.Token, fence, held, err)
				}
				r := extensions([]driver.AcquireRequest{c})
				r[0].Fence = fence
				wantIs(t, "extend "+value, p.s.Extend(t.Context(), r)[0], driver.ErrLost)
			}
			if ok, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: c.Token}); ok && value != c.Token+" reserved" || err != nil {
				t.Errorf("%q: revoke by %s: %v, %v", value, c.Token, ok, err)
			}
			if value != c.Token+" reserved" {
				wantValue(t, server, c.Token, "n", value)
			}
		}
	}
}

// A value without a fence, as scripts formerly wrote it, should be a lock with this token and an
// unknown fence. Others should wait until it expires.
func TestValueWithoutAFence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	old, other := p.request("n"), p.request("n")
	old.Token = "web-7:211:q3ZkAbCdEfGhIjKl:m-00000001"
	const ms = 300
	begin := time.Now()
	server.MustCmd(t, "SET", "n", old.Token, "PX", fmt.Sprint(ms))
	server.MustCmd(t, "HSET", "{n}"+meta, "=", "17 :1")
	server.MustCmd(t, "PEXPIRE", "{n}"+meta, "600000")
	if reply := p.acquire(other); reply.Held || reply.Holder != old.Token || reply.Poll != 0 {
		t.Errorf("%+v, want the holder %s", reply, old.Token)
	}
	if state := p.inspect("n"); len(state.Holders) != 1 || state.Holders[0].Token != old.Token || state.Holders[0].Fence != 0 || state.Foreign != nil {
		t.Errorf("%+v, want the holder %s without a fence", state, old.Token)
	}
	if ok, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: 17}); ok || err != nil {
		t.Errorf("revoked by the fence of another record: %v, %v", ok, err)
	}
	p.eventually("the end of its TTL", func() bool { return p.acquire(other).Held })
	if took := time.Since(begin); took < ms*time.Millisecond {
		t.Errorf("acquired after %v", took)
	}

	server.MustCmd(t, "SET", "m", old.Token, "PX", "1000")
	old.Name = "m"
	p.mustExtend([]driver.AcquireRequest{old})
	wantValue(t, server, "extended", "m", old.Token)
	p.mustRelease(old, 7)
	if n := server.MustCmd(t, "EXISTS", "m"); n != int64(0) {
		t.Error("the release has left the lock")
	}
}
