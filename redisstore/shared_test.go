package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// sharedRequest is a request for a shared lease.
func (p *testClient) sharedRequest(name string, weight, limit int, ttl time.Duration) driver.AcquireRequest {
	r := p.request(name)
	r.Weight, r.Limit, r.TTL, r.Queue = weight, limit, ttl, false
	return r
}

func (p *testClient) release(r driver.AcquireRequest) (bool, error) {
	return p.s.Release(p.t.Context(), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Until: time.Now().Add(generous)})
}

func (p *testClient) extend(leases ...driver.AcquireRequest) []error {
	return p.s.Extend(p.t.Context(), extensions(leases))
}

// extensions returns requests to extend leases.
func extensions(leases []driver.AcquireRequest) []driver.ExtendRequest {
	requests := make([]driver.ExtendRequest, len(leases))
	for i, r := range leases {
		requests[i] = driver.ExtendRequest{Name: r.Name, Token: r.Token, Client: r.Client, Fence: 1, TTL: r.TTL, Weight: r.Weight, Limit: r.Limit}
	}
	return requests
}

// foreignValues are values with other types at the lock's key: the commands to write and read them.
var foreignValues = map[string][2]string{
	"sorted set, a Symfony lock": {"ZADD n 99999999999 AzMX9iQLfWS0b3Pa 99999999999 __write__", "ZRANGE n 0 -1 WITHSCORES"},
	"sorted set, scores of old":  {"ZADD n 10 alice 20 bob 30 carol", "ZRANGE n 0 -1 WITHSCORES"},
	"hash, a Redisson lock":      {"HSET n 6b1f:40 1 mode read", "HGETALL n"},
	"set":                        {"SADD n alice bob", "SMEMBERS n"},
}

// Every operation should report a value with another type at a lock's key, and not change it; even
// if shared holders expired a moment ago and left other keys.
func TestWrongTypeAfterExpiredHolders(t *testing.T) {
	t.Parallel()
	const short = 30 * time.Millisecond
	kinds := map[string]func(p *testClient) driver.AcquireRequest{
		"reader": func(p *testClient) driver.AcquireRequest { return p.sharedRequest("n", 1, driver.Unlimited, short) },
		"permit": func(p *testClient) driver.AcquireRequest { return p.sharedRequest("n", 2, 3, short) },
		"mutex":  func(p *testClient) driver.AcquireRequest { r := p.sharedRequest("n", 1, 1, short); return r },
	}
	for kind, died := range kinds {
		for what, key := range foreignValues {
			t.Run(kind+"/"+what, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := newClient(t, open(t, server, redisstore.Prefix("")))
				dead := died(p)
				p.mustAcquire(dead)
				for end := time.Now().Add(generous); server.MustCmd(t, "EXISTS", "n") != int64(0); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the lease does not expire")
					}
				}
				server.MustCmd(t, strings.Fields(key[0])...)
				before := fmt.Sprint(server.MustCmd(t, strings.Fields(key[1])...))
				for verb, try := range map[string]func() error{
					"read": func() error {
						_, err := p.s.Acquire(t.Context(), p.sharedRequest("n", 1, driver.Unlimited, time.Minute))
						return err
					},
					"permit": func() error { _, err := p.s.Acquire(t.Context(), p.sharedRequest("n", 1, 3, time.Minute)); return err },
					"lock":   func() error { _, err := p.s.Acquire(t.Context(), p.request("n")); return err },
					"all": func() error {
						r := p.request("m")
						r.With = []string{"n"}
						_, err := p.s.Acquire(t.Context(), r)
						return err
					},
					"resize":  func() error { _, err := p.s.Resize(t.Context(), dead); return err },
					"release": func() error { _, err := p.release(dead); return err },
					"cancel":  func() error { dead.Until = time.Now().Add(generous); return p.s.Cancel(t.Context(), dead) },
					"revoke":  func() error { _, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: 1}); return err },
					"inspect": func() error { _, err := p.s.Inspect(t.Context(), "n"); return err },
					"extend":  func() error { return p.extend(dead)[0] },
				} {
					wantIs(t, verb, try(), dibs.ErrWrongType)
				}
				if after := fmt.Sprint(server.MustCmd(t, strings.Fields(key[1])...)); after != before {
					t.Errorf("%s is now %s", before, after)
				}
			})
		}
	}
}

// A client without dibs' scripts must not become a shared holder, and no release deletes a value
// with another type.
func TestForeignWritesToSharedLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	for _, limit := range []int{2, driver.Unlimited} {
		r := p.sharedRequest("n", 1, limit, time.Minute)
		p.mustAcquire(r)
		if _, err := server.Cmd("ZADD", "n", "99999999999999", "qLLh3S+GTuCp8g7G3Fvl"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("ZADD beside a shared holder: %v", err)
		}
		if value, _ := server.MustCmd(t, "GET", "n").(string); value != "dibs:shared 1" {
			t.Errorf("the lock is %q", value)
		}
		if reply := server.MustCmd(t, "SET", "n", "mine", "NX", "PX", "1000"); reply != nil {
			t.Errorf("SET NX beside a shared holder: %v", reply)
		}
		p.mustRelease(r, 0)
		wantOnlyHighwaterMarks(t, server, 1)
	}
}

// The lock key decides. If it is deleted or overwritten, its shared holders do not hold
// any more, and do not count for later shared holders or after them.
func TestLockKeyDecides(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{3, driver.Unlimited} {
		for _, by := range []string{"DEL n", "SET n somebody", "SET n somebody PX 60000"} {
			t.Run(fmt.Sprintf("%d/%s", limit, by), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := newClient(t, open(t, server, redisstore.Prefix("")))
				old := []driver.AcquireRequest{p.sharedRequest("n", 1, limit, time.Minute), p.sharedRequest("n", 2, limit, time.Hour)}
				for _, r := range old {
					p.mustAcquire(r)
				}
				server.MustCmd(t, strings.Fields(by)...)
				for _, r := range old {
					wantIs(t, "extend", p.extend(r)[0], dibs.ErrLost)
					if held, err := p.release(r); held || err != nil {
						t.Errorf("release: %v, %v", held, err)
					}
				}
				if by != "DEL n" {
					if a := p.acquire(p.sharedRequest("n", 1, limit, time.Minute)); a.Held || a.Holder != "somebody" {
						t.Errorf("%+v beside another holder", a)
					}
					server.MustCmd(t, "DEL", "n") // it releases
				}
				mutex := p.request("n")
				p.mustRelease(mutex, p.mustAcquire(mutex))
				fresh := []driver.AcquireRequest{p.sharedRequest("n", 2, limit, time.Minute), p.sharedRequest("n", 1, limit, time.Minute)}
				for _, r := range fresh {
					p.mustAcquire(r)
				}
				if state := p.inspect("n"); state.Holding != 2 {
					t.Errorf("%d hold, want 2: %+v", state.Holding, state)
				}
				for _, r := range old {
					wantIs(t, "extend beside new ones", p.extend(r)[0], dibs.ErrLost)
				}
				for _, r := range fresh {
					p.mustRelease(r, 0)
				}
				p.mustAcquire(p.request("n"))
			})
		}
	}
}

// If the holders are lost and the lock is not, nobody acquires until the lock expires:
// the holders may still be at work. Nothing extends it.
func TestHoldersAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	r := p.sharedRequest("n", 2, 4, time.Minute)
	p.mustAcquire(r)
	server.MustCmd(t, "DEL", "{n}"+shared)
	for _, next := range []driver.AcquireRequest{p.sharedRequest("n", 1, 4, time.Minute), p.sharedRequest("n", 1, driver.Unlimited, time.Minute), p.sharedRequest("n", 1, 1, time.Minute)} {
		if a := p.acquire(next); a.Held || a.Remaining <= 0 || a.Remaining > time.Minute {
			t.Errorf("%+v while the holders are unknown", a)
		}
	}
	waiter := p.request("n")
	p.mustWait(waiter)
	wantIs(t, "extend", p.extend(r)[0], dibs.ErrLost)
	if held, err := p.release(r); held || err != nil {
		t.Errorf("release: %v, %v", held, err)
	}
	if server.MustCmd(t, "EXISTS", "n") != int64(1) {
		t.Error("the lock expired too early")
	}
	server.MustCmd(t, "PEXPIRE", "n", "1")
	p.eventually("the lock expires", func() bool { return p.acquire(waiter).Held })
}

// If the metadata are lost, leases continue, and nothing beyond the limit is granted. Renewals
// restore the weights; a holder that is not renewed counts as 1.
func TestMetadataIsLost(t *testing.T) {
	t.Parallel()
	for _, renewed := range []bool{true, false} {
		t.Run(fmt.Sprintf("renewed %v", renewed), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := newClient(t, open(t, server, redisstore.Prefix("")))
			three, two := p.sharedRequest("n", 3, 6, time.Minute), p.sharedRequest("n", 2, 6, time.Minute)
			p.mustAcquire(three)
			p.mustAcquire(two)
			server.MustCmd(t, "DEL", "{n}"+meta)
			if renewed {
				if err := errors.Join(p.extend(three, two)...); err != nil {
					t.Fatal(err)
				}
			}
			one := p.sharedRequest("n", 1, 6, time.Minute)
			p.mustAcquire(one)
			if a := p.acquire(p.sharedRequest("n", 1, 6, time.Minute)); a.Held {
				t.Error("7 of 6 permits are held")
			}
			p.mustRelease(three, 0)
			room := p.sharedRequest("n", 3, 6, time.Minute)
			if a := p.acquire(room); a.Held != renewed {
				t.Errorf("3 of 6 permits, 3 held, weights known %v: held %v", renewed, a.Held)
			}
			for _, r := range []driver.AcquireRequest{two, one, room} {
				if _, err := p.release(r); err != nil {
					t.Error(err)
				}
			}
			all := p.sharedRequest("n", 5, 6, time.Minute)
			p.mustRelease(all, p.mustAcquire(all))
			wantOnlyHighwaterMarks(t, server, 1)
		})
	}
}

// The shared lock should expire with its last known holder.
func TestLockExpiresWithLastHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	ends := func(want time.Duration) {
		t.Helper()
		ms, _ := server.MustCmd(t, "PTTL", "n").(int64)
		if left := time.Duration(ms) * time.Millisecond; left > want || left < want-generous {
			t.Errorf("the lock expires in %v, want %v", left, want)
		}
	}
	short, long := p.sharedRequest("n", 1, 9, time.Minute), p.sharedRequest("n", 1, 9, 30*time.Minute)
	p.mustAcquire(short)
	ends(time.Minute)
	p.mustAcquire(long)
	ends(30 * time.Minute)
	short.TTL = 50 * time.Minute
	if err := p.extend(short)[0]; err != nil {
		t.Fatal(err)
	}
	ends(50 * time.Minute)
	p.mustRelease(short, 0)
	ends(30 * time.Minute)
	p.mustRelease(long, 0)
	if n := server.MustCmd(t, "EXISTS", "n"); n != int64(0) {
		t.Error("the lock was not deleted")
	}
}

// A shared lock's value must not be a token.
func TestSharedMarkIsNoToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	p.mustAcquire(p.sharedRequest("n", 1, 2, time.Minute))
	for _, token := range []string{"dibs:shared 1", "dibs:shared 2", "dibs:shared x reserved"} {
		r := p.sharedRequest("n", 1, 2, time.Minute)
		r.Token = token
		_, err := p.s.Acquire(t.Context(), r)
		wantIs(t, "acquire", err, dibs.ErrInvalid)
		_, err = p.s.Resize(t.Context(), r)
		wantIs(t, "resize", err, dibs.ErrInvalid)
		_, err = p.release(r)
		wantIs(t, "release", err, dibs.ErrInvalid)
		wantIs(t, "cancel", p.s.Cancel(t.Context(), r), dibs.ErrInvalid)
		wantIs(t, "extend", p.extend(r)[0], dibs.ErrInvalid)
	}
	if state := p.inspect("n"); state.Holding != 1 {
		t.Errorf("%+v", state)
	}
}

// eventually waits until a condition holds.
func (p *testClient) eventually(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(generous); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("still waiting: %s", what)
		}
	}
}

// A server without free memory should still renew and release: these need no memory.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("the batch begins with lease %d", first), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := watchingClient(t, open(t, server, redisstore.Prefix("")))
			requests := []driver.AcquireRequest{p.request("mutex"), p.sharedRequest("read", 1, driver.Unlimited, time.Minute), p.sharedRequest("permits", 2, 4, time.Minute), p.sharedRequest("gone", 1, 2, time.Minute), p.request("long")}
			for _, c := range requests {
				p.mustAcquire(c)
			}
			held := slices.Delete(slices.Clone(requests), 3, 4)
			server.MustCmd(t, "DEL", "gone")
			for i := range requests[:4] {
				requests[i].TTL = time.Hour
			}
			requests[4].TTL = time.Second // shorter than the lease's remaining time
			waiters := []driver.AcquireRequest{p.request("mutex"), p.sharedRequest("read", driver.Unlimited, driver.Unlimited, time.Minute), p.sharedRequest("permits", 4, 5, time.Minute)}
			for i := range waiters {
				waiters[i].Queue = true
				p.mustWait(waiters[i])
			}
			server.MustCmd(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
			server.MustCmd(t, "CONFIG", "SET", "maxmemory", "1")
			if _, err := p.s.Acquire(t.Context(), p.sharedRequest("more", 1, 2, time.Minute)); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Fatalf("acquire without memory: %v", err)
			}
			batch := append(slices.Clone(requests[first:]), requests[:first]...)
			for i, err := range p.extend(batch...) {
				if want := batch[i].Name == "gone"; want != errors.Is(err, dibs.ErrLost) || !want && err != nil {
					t.Errorf("extend %s: %v", batch[i].Name, err)
				}
			}
			for i, c := range requests[:3] {
				if ms, _ := server.MustCmd(t, "PTTL", c.Name).(int64); ms < 3_000_000 {
					t.Errorf("%s expires in %d ms", c.Name, ms)
				}
				r := driver.ReleaseRequest{Name: c.Name, Token: c.Token, Until: time.Now().Add(generous)}
				if first%2 == 0 {
					r.Reserve = time.Minute
				}
				if ok, err := p.s.Release(t.Context(), r); !ok || err != nil {
					t.Errorf("release %s, reserved for %v: %v, %v", c.Name, r.Reserve, ok, err)
				}
				if r.Reserve == 0 {
					p.wantGrant(waiters[i])
				} else if state := p.inspect(c.Name); len(state.Holders) != 1 || state.Holders[0].Token != c.Token || !state.Holders[0].Reserved {
					t.Errorf("%s is reserved, and %+v holds", c.Name, state.Holders)
				}
			}
			if ok, err := p.release(held[3]); !ok || err != nil {
				t.Errorf("release: %v, %v", ok, err)
			}
		})
	}
}

// If a call for many leases is refused because of one lease, the others should be extended.
func TestRefusedKeyInBatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	a, bad, b := p.sharedRequest("a", 1, 2, time.Minute), p.sharedRequest("bad", 1, 2, time.Minute), p.request("b")
	for _, r := range []driver.AcquireRequest{a, bad, b} {
		p.mustAcquire(r)
	}
	server.MustCmd(t, "DEL", "{bad}"+shared)
	server.MustCmd(t, "LPUSH", "{bad}"+shared, "x")
	errs := p.extend(a, bad, b)
	wantIs(t, "extend", errs[1], dibs.ErrWrongType)
	if err := errors.Join(errs[0], errs[2]); err != nil {
		t.Error(err)
	}
}
