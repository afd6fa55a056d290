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
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// share is a claim on a part of a name.
func (p *party) share(name string, weight, limit int, ttl time.Duration) driver.AcquireRequest {
	c := p.claim(name)
	c.Weight, c.Limit, c.TTL, c.Queue = weight, limit, ttl, false
	return c
}

func (p *party) release(c driver.AcquireRequest) (bool, error) {
	return p.s.Release(p.t.Context(), driver.ReleaseRequest{Name: c.Name, Token: c.Token, Until: time.Now().Add(generous)})
}

func (p *party) extend(claims ...driver.AcquireRequest) []error {
	holds := make([]driver.ExtendRequest, len(claims))
	for i, c := range claims {
		holds[i] = driver.ExtendRequest{Name: c.Name, Token: c.Token, Client: c.Client, Fence: 1, TTL: c.TTL, Weight: c.Weight, Limit: c.Limit}
	}
	return p.s.Extend(p.t.Context(), holds)
}

// foreign keys at the lock's, by the commands that make them, and how to read them.
var foreign = map[string][2]string{
	"sorted set, a Symfony lock": {"ZADD n 99999999999 AzMX9iQLfWS0b3Pa 99999999999 __write__", "ZRANGE n 0 -1 WITHSCORES"},
	"sorted set, scores of old":  {"ZADD n 10 alice 20 bob 30 carol", "ZRANGE n 0 -1 WITHSCORES"},
	"hash, a Redisson lock":      {"HSET n 6b1f:40 1 mode read", "HGETALL n"},
	"set":                        {"SADD n alice bob", "SMEMBERS n"},
}

// What others keep at a name's key is told, by every verb, and stays as it is: also
// where holders that shared the name died a moment ago, and so left something behind.
func TestForeignKeysAfterTheDead(t *testing.T) {
	t.Parallel()
	const short = 30 * time.Millisecond
	kinds := map[string]func(p *party) driver.AcquireRequest{
		"reader": func(p *party) driver.AcquireRequest { return p.share("n", 1, driver.Unlimited, short) },
		"permit": func(p *party) driver.AcquireRequest { return p.share("n", 2, 3, short) },
		"mutex":  func(p *party) driver.AcquireRequest { c := p.share("n", 1, 1, short); return c },
	}
	for kind, died := range kinds {
		for what, key := range foreign {
			t.Run(kind+"/"+what, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := mute(t, open(t, server, redisstore.Prefix("")))
				dead := died(p)
				p.take(dead)
				for end := time.Now().Add(generous); server.MustCmd(t, "EXISTS", "n") != int64(0); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the lease does not end")
					}
				}
				server.MustCmd(t, strings.Fields(key[0])...)
				before := fmt.Sprint(server.MustCmd(t, strings.Fields(key[1])...))
				for verb, try := range map[string]func() error{
					"read": func() error {
						_, err := p.s.Acquire(t.Context(), p.share("n", 1, driver.Unlimited, time.Minute))
						return err
					},
					"permit": func() error { _, err := p.s.Acquire(t.Context(), p.share("n", 1, 3, time.Minute)); return err },
					"lock":   func() error { _, err := p.s.Acquire(t.Context(), p.claim("n")); return err },
					"all": func() error {
						c := p.claim("m")
						c.With = []string{"n"}
						_, err := p.s.Acquire(t.Context(), c)
						return err
					},
					"reweigh": func() error { _, err := p.s.Resize(t.Context(), dead); return err },
					"release": func() error { _, err := p.release(dead); return err },
					"abandon": func() error { dead.Until = time.Now().Add(generous); return p.s.Cancel(t.Context(), dead) },
					"break":   func() error { _, err := p.s.Revoke(t.Context(), "n", 1); return err },
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

// Nobody joins dibs' shared holders by a command of their own, and no release takes
// away what it does not know.
func TestNobodyJoinsByHand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	for _, limit := range []int{2, driver.Unlimited} {
		c := p.share("n", 1, limit, time.Minute)
		p.take(c)
		if _, err := server.Cmd("ZADD", "n", "99999999999999", "qLLh3S+GTuCp8g7G3Fvl"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("ZADD beside a shared holder: %v", err)
		}
		if value, _ := server.MustCmd(t, "GET", "n").(string); value != "dibs:shared 1" {
			t.Errorf("the lock is %q", value)
		}
		if reply := server.MustCmd(t, "SET", "n", "mine", "NX", "PX", "1000"); reply != nil {
			t.Errorf("SET NX beside a shared holder: %v", reply)
		}
		p.free(c, 0)
		wantOnlyFloors(t, server, 1)
	}
}

// The lock key decides. Who shared the name holds no more when it is deleted or
// overwritten, and counts neither for the next who share it, nor after them.
func TestTheLockKeyDecides(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{3, driver.Unlimited} {
		for _, by := range []string{"DEL n", "SET n somebody", "SET n somebody PX 60000"} {
			t.Run(fmt.Sprintf("%d/%s", limit, by), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := mute(t, open(t, server, redisstore.Prefix("")))
				old := []driver.AcquireRequest{p.share("n", 1, limit, time.Minute), p.share("n", 2, limit, time.Hour)}
				for _, c := range old {
					p.take(c)
				}
				server.MustCmd(t, strings.Fields(by)...)
				for _, c := range old {
					wantIs(t, "extend", p.extend(c)[0], dibs.ErrLost)
					if held, err := p.release(c); held || err != nil {
						t.Errorf("release: %v, %v", held, err)
					}
				}
				if by != "DEL n" {
					if a := p.ask(p.share("n", 1, limit, time.Minute)); a.Held || a.Holder != "somebody" {
						t.Errorf("%+v beside somebody", a)
					}
					server.MustCmd(t, "DEL", "n") // he releases
				}
				mutex := p.claim("n")
				p.free(mutex, p.take(mutex))
				fresh := []driver.AcquireRequest{p.share("n", 2, limit, time.Minute), p.share("n", 1, limit, time.Minute)}
				for _, c := range fresh {
					p.take(c)
				}
				if state := p.inspect("n"); state.Holding != 2 {
					t.Errorf("%d hold, want 2: %+v", state.Holding, state)
				}
				for _, c := range old {
					wantIs(t, "extend beside new ones", p.extend(c)[0], dibs.ErrLost)
				}
				for _, c := range fresh {
					p.free(c, 0)
				}
				p.take(p.claim("n"))
			})
		}
	}
}

// If the holders are lost and the lock is not, nobody enters until it ends: they may be
// at work. Nothing prolongs it.
func TestHoldersAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	c := p.share("n", 2, 4, time.Minute)
	p.take(c)
	server.MustCmd(t, "DEL", "{n}"+shared)
	for _, next := range []driver.AcquireRequest{p.share("n", 1, 4, time.Minute), p.share("n", 1, driver.Unlimited, time.Minute), p.share("n", 1, 1, time.Minute)} {
		if a := p.ask(next); a.Held || a.Remaining <= 0 || a.Remaining > time.Minute {
			t.Errorf("%+v where the holders are not known", a)
		}
	}
	waiter := p.claim("n")
	p.wait(waiter)
	wantIs(t, "extend", p.extend(c)[0], dibs.ErrLost)
	if held, err := p.release(c); held || err != nil {
		t.Errorf("release: %v, %v", held, err)
	}
	if server.MustCmd(t, "EXISTS", "n") != int64(1) {
		t.Error("the lock is gone before its time")
	}
	server.MustCmd(t, "PEXPIRE", "n", "1")
	p.eventually("it ends", func() bool { return p.ask(waiter).Held })
}

// If the meta are lost, what is held goes on, and never is more granted than fits.
// The renewals bring the weights back; of who is not renewed, the least is supposed.
func TestSignsAreLost(t *testing.T) {
	t.Parallel()
	for _, renewed := range []bool{true, false} {
		t.Run(fmt.Sprintf("renewed %v", renewed), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := mute(t, open(t, server, redisstore.Prefix("")))
			three, two := p.share("n", 3, 6, time.Minute), p.share("n", 2, 6, time.Minute)
			p.take(three)
			p.take(two)
			server.MustCmd(t, "DEL", "{n}"+meta)
			if renewed {
				if err := errors.Join(p.extend(three, two)...); err != nil {
					t.Fatal(err)
				}
			}
			one := p.share("n", 1, 6, time.Minute)
			p.take(one)
			if a := p.ask(p.share("n", 1, 6, time.Minute)); a.Held {
				t.Error("a seventh of 6 permits")
			}
			p.free(three, 0)
			room := p.share("n", 3, 6, time.Minute)
			if a := p.ask(room); a.Held != renewed {
				t.Errorf("3 of 6 permits, 3 held, weights known %v: held %v", renewed, a.Held)
			}
			for _, c := range []driver.AcquireRequest{two, one, room} {
				if _, err := p.release(c); err != nil {
					t.Error(err)
				}
			}
			all := p.share("n", 5, 6, time.Minute)
			p.free(all, p.take(all))
			wantOnlyFloors(t, server, 1)
		})
	}
}

// The lock of those who share it ends with the last of them, as far as is known.
func TestTheLockEndsWithTheLast(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	ends := func(want time.Duration) {
		t.Helper()
		ms, _ := server.MustCmd(t, "PTTL", "n").(int64)
		if left := time.Duration(ms) * time.Millisecond; left > want || left < want-generous {
			t.Errorf("the lock ends in %v, want %v", left, want)
		}
	}
	short, long := p.share("n", 1, 9, time.Minute), p.share("n", 1, 9, 30*time.Minute)
	p.take(short)
	ends(time.Minute)
	p.take(long)
	ends(30 * time.Minute)
	short.TTL = 50 * time.Minute
	if err := p.extend(short)[0]; err != nil {
		t.Fatal(err)
	}
	ends(50 * time.Minute)
	p.free(short, 0)
	ends(30 * time.Minute)
	p.free(long, 0)
	if n := server.MustCmd(t, "EXISTS", "n"); n != int64(0) {
		t.Error("the lock is left")
	}
}

// What the lock says of shared holders is nobody's token.
func TestSharedIsNoToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	p.take(p.share("n", 1, 2, time.Minute))
	for _, token := range []string{"dibs:shared 1", "dibs:shared 2", "dibs:shared x reserved"} {
		c := p.share("n", 1, 2, time.Minute)
		c.Token = token
		_, err := p.s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, dibs.ErrInvalid)
		_, err = p.s.Resize(t.Context(), c)
		wantIs(t, "reweigh", err, dibs.ErrInvalid)
		_, err = p.release(c)
		wantIs(t, "release", err, dibs.ErrInvalid)
		wantIs(t, "abandon", p.s.Cancel(t.Context(), c), dibs.ErrInvalid)
		wantIs(t, "extend", p.extend(c)[0], dibs.ErrInvalid)
	}
	if state := p.inspect("n"); state.Holding != 1 {
		t.Errorf("%+v", state)
	}
}

// eventually waits until something is so.
func (p *party) eventually(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(generous); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("still waiting: %s", what)
		}
	}
}

// A server without memory to give renews and releases all the same: that needs none.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("the batch begins with hold %d", first), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := join(t, open(t, server, redisstore.Prefix("")))
			claims := []driver.AcquireRequest{p.claim("mutex"), p.share("read", 1, driver.Unlimited, time.Minute), p.share("permits", 2, 4, time.Minute), p.share("gone", 1, 2, time.Minute), p.claim("long")}
			for _, c := range claims {
				p.take(c)
			}
			held := slices.Delete(slices.Clone(claims), 3, 4)
			server.MustCmd(t, "DEL", "gone")
			for i := range claims[:4] {
				claims[i].TTL = time.Hour
			}
			claims[4].TTL = time.Second // shorter than what is left
			waiters := []driver.AcquireRequest{p.claim("mutex"), p.share("read", driver.Unlimited, driver.Unlimited, time.Minute), p.share("permits", 4, 5, time.Minute)}
			for i := range waiters {
				waiters[i].Queue = true
				p.wait(waiters[i])
			}
			server.MustCmd(t, "CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
			if _, err := p.s.Acquire(t.Context(), p.share("more", 1, 2, time.Minute)); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Fatalf("acquire without memory: %v", err)
			}
			batch := append(slices.Clone(claims[first:]), claims[:first]...)
			for i, err := range p.extend(batch...) {
				if want := batch[i].Name == "gone"; want != errors.Is(err, dibs.ErrLost) || !want && err != nil {
					t.Errorf("extend %s: %v", batch[i].Name, err)
				}
			}
			for i, c := range claims[:3] {
				if ms, _ := server.MustCmd(t, "PTTL", c.Name).(int64); ms < 3_000_000 {
					t.Errorf("%s ends in %d ms", c.Name, ms)
				}
				r := driver.ReleaseRequest{Name: c.Name, Token: c.Token, Until: time.Now().Add(generous)}
				if first%2 == 0 {
					r.Reserve = time.Minute
				}
				if ok, err := p.s.Release(t.Context(), r); !ok || err != nil {
					t.Errorf("release %s, kept for %v: %v, %v", c.Name, r.Reserve, ok, err)
				}
				if r.Reserve == 0 {
					p.granted(waiters[i])
				} else if state := p.inspect(c.Name); len(state.Holders) != 1 || state.Holders[0].Token != c.Token+driver.ReservedSuffix {
					t.Errorf("%s is kept, and %+v holds", c.Name, state.Holders)
				}
			}
			if ok, err := p.release(held[3]); !ok || err != nil {
				t.Errorf("release: %v, %v", ok, err)
			}
		})
	}
}

// A call for many that is refused because of one extends the others.
func TestOneRefusesTheBatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	a, bad, b := p.share("a", 1, 2, time.Minute), p.share("bad", 1, 2, time.Minute), p.claim("b")
	for _, c := range []driver.AcquireRequest{a, bad, b} {
		p.take(c)
	}
	server.MustCmd(t, "DEL", "{bad}"+shared)
	server.MustCmd(t, "LPUSH", "{bad}"+shared, "x")
	errs := p.extend(a, bad, b)
	wantIs(t, "extend", errs[1], dibs.ErrWrongType)
	if err := errors.Join(errs[0], errs[2]); err != nil {
		t.Error(err)
	}
}
