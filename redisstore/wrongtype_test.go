package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// wrongTypes are other programs' values, by type: the words to write them, with KEY for the key.
var wrongTypes = map[string]string{
	"string": "SET KEY 6afafe03-cf00-4f8a-9c5e-3d8f1b2a7c44 PX 60000",
	"hash":   "HSET KEY 8743c9c0-0795-4907-87fd-6c719a6b4586:40 1",
	"zset":   "ZADD KEY 99999999999999 qLLh3S+GTuCp8g7G3FvlQoNSz8fuQjI82TIVIqlpysQ= 99999999999999 __write__",
	"list":   "RPUSH KEY 8743c9c0-0795-4907-87fd-6c719a6b4586:40",
	"set":    "SADD KEY alice bob",
	"stream": "XADD KEY 1-1 field value",
}

// keysOfLock are the keys for the lock n without a prefix, with their types in dibs.
var keysOfLock = map[string]string{"n": "string", "{n}:dibs:queue": "zset", "{n}:dibs:meta": "hash", "{n}:dibs:holders": "zset", "HIGHWATER": "string"}

// situations are a client's steps before another program writes one of the lock's keys.
var situations = map[string]func(p *testClient) driver.AcquireRequest{
	"free":  func(p *testClient) driver.AcquireRequest { return p.request("n") },
	"mutex": func(p *testClient) driver.AcquireRequest { r := p.request("n"); p.mustAcquire(r); return r },
	"renewed mutex": func(p *testClient) driver.AcquireRequest {
		r := p.request("n")
		p.mustAcquire(r)
		if err := p.extend(r)[0]; err != nil {
			p.t.Fatal(err)
		}
		return r
	},
	"mutex with a waiter": func(p *testClient) driver.AcquireRequest {
		r, waiter := p.request("n"), p.request("n")
		waiter.Queue = true
		p.mustAcquire(r)
		p.mustWait(waiter)
		return r
	},
	"reader": func(p *testClient) driver.AcquireRequest {
		r := p.sharedRequest("n", 1, driver.Unlimited, time.Minute)
		p.mustAcquire(r)
		return r
	},
	"permit": func(p *testClient) driver.AcquireRequest {
		r := p.sharedRequest("n", 1, 3, time.Minute)
		p.mustAcquire(r)
		return r
	},
}

// verbs are a store's operations on the lock n, with the request of a client that may hold it.
var verbs = map[string]func(p *testClient, own driver.AcquireRequest) error{
	"lock":    func(p *testClient, _ driver.AcquireRequest) error { return p.try(p.request("n"), false) },
	"wait":    func(p *testClient, _ driver.AcquireRequest) error { return p.try(p.request("n"), true) },
	"refresh": func(p *testClient, own driver.AcquireRequest) error { return p.try(own, false) },
	"read": func(p *testClient, _ driver.AcquireRequest) error {
		return p.try(p.sharedRequest("n", 1, driver.Unlimited, time.Minute), false)
	},
	"permit": func(p *testClient, _ driver.AcquireRequest) error {
		return p.try(p.sharedRequest("n", 2, 5, time.Minute), true)
	},
	"all": func(p *testClient, _ driver.AcquireRequest) error {
		r := p.request("m")
		r.With = []string{"n"}
		return p.try(r, false)
	},
	"wait for all": func(p *testClient, _ driver.AcquireRequest) error {
		r := p.request("m")
		r.With = []string{"n"}
		return p.try(r, true)
	},
	"vote": func(p *testClient, _ driver.AcquireRequest) error {
		r := p.request("n")
		r.Vote = &driver.Vote{Ticket: 1, Fence: 1}
		_, err := p.s.Acquire(p.t.Context(), r)
		return err
	},
	"extend": func(p *testClient, own driver.AcquireRequest) error { return p.extend(own)[0] },
	"resize": func(p *testClient, own driver.AcquireRequest) error {
		own.Weight, own.Limit, own.Until = driver.Unlimited, driver.Unlimited, time.Now().Add(generous)
		_, err := p.s.Resize(p.t.Context(), own)
		return err
	},
	"release": func(p *testClient, own driver.AcquireRequest) error { _, err := p.release(own); return err },
	"reserve": func(p *testClient, own driver.AcquireRequest) error {
		_, err := p.s.Release(p.t.Context(), driver.ReleaseRequest{Name: "n", Token: own.Token, Reserve: time.Minute, Until: time.Now().Add(generous)})
		return err
	},
	"cancel": func(p *testClient, own driver.AcquireRequest) error {
		own.Until = time.Now().Add(generous)
		return p.s.Cancel(p.t.Context(), own)
	},
	"revoke": func(p *testClient, _ driver.AcquireRequest) error {
		_, err := p.s.Revoke(p.t.Context(), driver.RevokeRequest{Name: "n", Fence: 1})
		return err
	},
	"wanted": func(p *testClient, own driver.AcquireRequest) error {
		_, err := p.s.NotifyWanted(p.t.Context(), driver.WantedRequest{Name: "n", Token: own.Token, Client: own.Client})
		return err
	},
	"inspect": func(p *testClient, _ driver.AcquireRequest) error {
		_, err := p.s.Inspect(p.t.Context(), "n")
		return err
	},
}

func (p *testClient) try(r driver.AcquireRequest, queue bool) error {
	r.Queue, r.Until = queue, time.Now().Add(generous)
	_, err := p.s.Acquire(p.t.Context(), r)
	return err
}

// No verb changes or deletes a value with another type at one of a lock's keys. Each verb reports
// it on the lock key. The verbs that need an auxiliary key report it there.
func TestNoVerbChangesAForeignKey(t *testing.T) {
	t.Parallel()
	for situation, prepare := range situations {
		t.Run(situation, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := newClient(t, open(t, server, redisstore.Prefix("")))
			highwater := highwaterKeyOf(t, server, p, "n")
			for key, expected := range keysOfLock {
				if key == "HIGHWATER" {
					key = highwater
				}
				for kind, words := range wrongTypes {
					if kind == expected {
						continue
					}
					for verb, do := range verbs {
						server.MustCmd(t, "FLUSHALL")
						own := prepare(p)
						server.MustCmd(t, "DEL", key)
						server.MustCmd(t, strings.Fields(strings.Replace(words, "KEY", key, 1))...)
						before, lock := server.MustCmd(t, "DUMP", key), server.MustCmd(t, "DUMP", "n")
						err := do(p, own)
						what := fmt.Sprintf("%s, %s at %s", verb, kind, key)
						if after := server.MustCmd(t, "DUMP", key); after != before {
							t.Errorf("%s: it is changed to %q", what, server.MustCmd(t, "TYPE", key))
						}
						if after := server.MustCmd(t, "DUMP", "n"); err != nil && after != lock {
							t.Errorf("%s: %v, but the lock has changed from %q to %q", what, err, lock, after)
						}
						wantWrongType(t, what, err, key, key == "n")
					}
				}
			}
		})
	}
}

// wantWrongType checks an error about a key with another type, or that there is none unless an
// error is required.
func wantWrongType(t *testing.T, what string, err error, key string, required bool) {
	t.Helper()
	if !required && (err == nil || errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrWrongType)) {
		return
	}
	var wrong *driver.WrongTypeError
	switch {
	case !errors.As(err, &wrong) || !errors.Is(err, driver.ErrWrongType):
		t.Errorf("%s: %v, want ErrWrongType", what, err)
	case wrong.State.Foreign == nil || wrong.State.Foreign.Key != key:
		t.Errorf("%s: %v, described as %+v", what, err, wrong.State.Foreign)
	case !strings.Contains(err.Error(), fmt.Sprintf("key %q holds a ", key)):
		t.Errorf("%s: %v, want the key", what, err)
	}
}

// A foreign string at the lock key is the holder. No verb changes it.
func TestNoVerbChangesAForeignString(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	for _, value := range []string{"6afafe03-cf00-4f8a-9c5e-3d8f1b2a7c44", "ADDED:2026-11-24T10:00:00.123Z@web-1:6afafe03", "\x38\x62\xf3\xb1\x1e\xf2\x9d\x80\x7c\xc9\x22\xe1\x10\x9d\x7e\xfa\x7b\x69\x60\x00", "1"} {
		for verb, do := range verbs {
			server.MustCmd(t, "FLUSHALL")
			server.MustCmd(t, "SET", "n", value, "PX", "60000")
			before := server.MustCmd(t, "DUMP", "n")
			err := do(p, p.request("n"))
			if after := server.MustCmd(t, "DUMP", "n"); after != before {
				t.Errorf("%s changes %q", verb, value)
			}
			if verb != "extend" && err != nil || verb == "extend" && !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s beside %q: %v", verb, value, err)
			}
			if ttl, _ := server.MustCmd(t, "PTTL", "n").(int64); ttl <= 0 || ttl > 60000 {
				t.Errorf("%s changes the TTL to %d ms", verb, ttl)
			}
		}
	}
}
