package redisstore_test

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// A renewal of a lease whose fence is recorded writes the TTL of the lock only.
func TestCommandsOfARenewal(t *testing.T) {
	t.Parallel()
	const leases, most = 50, 3 // before Redis 7; 2 since
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	held := make([]driver.AcquireRequest, leases)
	for i := range held {
		held[i] = p.request("n" + strconv.Itoa(i))
		p.mustAcquire(held[i])
	}
	p.mustExtend(held) // records the fences
	p.mustRenew(held)  // loads the script
	for i := range held {
		held[i].TTL += time.Second
	}
	dirty := changes(t, server)
	each, runs := countCommands(t, server, func() { p.mustRenew(held) })
	if runs != 1 || each > most*leases+1 {
		t.Errorf("%d calls of %d commands for %d leases", runs, each, leases)
	}
	if n := changes(t, server) - dirty; n != leases {
		t.Errorf("%d changes for %d leases", n, leases)
	}
}

// The record of the fence lives for as long as driver.RecordInterval says, beside a lease that
// is renewed without it.
func TestRecordOutlivesItsInterval(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	for _, ttl := range []time.Duration{time.Second, 30 * time.Second, time.Hour} {
		c := p.request("n" + ttl.String())
		c.TTL = ttl
		p.mustAcquire(c)
		p.mustExtend([]driver.AcquireRequest{c})
		want := (ttl + driver.RecordInterval(ttl)).Milliseconds()
		if ms, _ := server.MustCmd(t, "PTTL", "{"+c.Name+"}"+meta).(int64); ms > want || ms < want-generous.Milliseconds() {
			t.Errorf("TTL %v: the record expires in %d ms, want %d", ttl, ms, want)
		}
	}
}

// The server may have another lease than the client expects: shared, as after a change of the
// weight that had no answer, lost, or of another type.
func TestRenewalFindsAnotherLease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	mine, reader, other, lost, foreign := p.request("mine"), p.request("reader"), p.request("other"), p.request("lost"), p.request("foreign")
	p.mustAcquire(mine)
	shared := p.sharedRequest("reader", 1, 7, time.Minute)
	shared.Token = reader.Token
	p.mustAcquire(shared)
	p.mustAcquire(p.request("other"))
	p.mustAcquire(p.sharedRequest("lost", 1, 7, time.Minute))
	server.MustCmd(t, "SADD", "foreign", "x")
	reader.TTL = time.Hour
	errs := p.renew(mine, reader, other, lost, foreign)
	for i, want := range []error{nil, nil, driver.ErrLost, driver.ErrLost, dibs.ErrWrongType} {
		if !errors.Is(errs[i], want) {
			t.Errorf("lease %d: %v, want %v", i, errs[i], want)
		}
	}
	if ms, _ := server.MustCmd(t, "PTTL", "reader").(int64); ms < time.Minute.Milliseconds() {
		t.Errorf("the reader's lease was not extended: %d ms", ms)
	}
}

func (p *testClient) mustRenew(held []driver.AcquireRequest) {
	p.t.Helper()
	if err := errors.Join(p.renew(held...)...); err != nil {
		p.t.Fatal(err)
	}
}

// renew extends leases whose fence is recorded.
func (p *testClient) renew(held ...driver.AcquireRequest) []error {
	requests := extensions(held)
	for i := range requests {
		requests[i].Recorded = true
	}
	return p.s.Extend(p.t.Context(), requests)
}

func (p *testClient) mustExtend(held []driver.AcquireRequest) {
	p.t.Helper()
	for i, err := range p.extend(held...) {
		if err != nil {
			p.t.Fatalf("extend %s: %v", held[i].Name, err)
		}
	}
}

// changes returns the number of changes of a server since it saved its data.
func changes(t *testing.T, server *redistest.Server) int {
	t.Helper()
	text, _ := server.MustCmd(t, "INFO", "persistence").(string)
	_, after, _ := strings.Cut(text, "rdb_changes_since_last_save:")
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

//go:embed testdata/before_7_0.lua
var before7 string

// The TTL of a lock is raised and never lowered, and the record lives as long, on servers
// with and without the option GT.
func TestExtendRaisesTheTTL(t *testing.T) {
	t.Parallel()
	for server, script := range map[string]string{"since 7.0": "", "before 7.0": before7} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			extend := func(seconds int) {
				t.Helper()
				reply, _ := server.MustCmd(t, "EVAL", script+wire.Plain().Extend.Text, "3", "n", "{n}"+meta, "{n}"+shared,
					"host:1:c:x", fmt.Sprint(seconds*1000), "7", "host:1:c", "0").([]any)
				if len(reply) != 2 || reply[1] != "1" {
					t.Fatalf("%v", reply)
				}
			}
			want := func(seconds int64) {
				t.Helper()
				lock, _ := server.MustCmd(t, "PTTL", "n").(int64)
				if lock > seconds*1000 || lock < seconds*1000-500_000 {
					t.Errorf("the lock expires in %d ms, want %d s", lock, seconds)
				}
				if ms, _ := server.MustCmd(t, "PTTL", "{n}"+meta).(int64); ms < lock {
					t.Errorf("the lock expires in %d ms, its metadata in %d ms", lock, ms)
				}
				if record := server.MustCmd(t, "HGET", "{n}"+meta, "="); record != "7 :x" {
					t.Errorf("the record is %q", record)
				}
			}
			server.MustCmd(t, "SET", "n", "host:1:c:x", "PX", "1000000")
			extend(2000)
			want(2000)
			extend(1000)
			want(2000)
			extend(2000) // perhaps within the same ms
			want(2000)
			extend(9000)
			want(9000)
			server.MustCmd(t, "PERSIST", "n")
			extend(3000)
			want(3000)
			server.MustCmd(t, "DEL", "{n}"+meta)
			extend(3001)
			want(3001)
		})
	}
}

// An extension that was sent before the last fence was issued does not overwrite its record.
func TestLateExtensionKeepsTheRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	c := p.request("n")
	p.mustAcquire(c)
	rest, isOwn := strings.CutPrefix(c.Token, p.client)
	if !isOwn {
		t.Fatalf("the token %q does not begin with its client %q", c.Token, p.client)
	}
	for _, test := range []struct{ recorded, want string }{
		{"9 " + rest, "9 " + rest},                         // a later fence
		{"9 host:1:d " + c.Token, "9 host:1:d " + c.Token}, // of another client
		{"1 host:1:d " + c.Token, "1 " + rest},             // attached by another client
		{"9 host:1:d other", "1 " + rest},
		{"9 " + rest + "x", "1 " + rest},
		{"9 :" + rest, "1 " + rest},
		{"?", "1 " + rest},
	} {
		server.MustCmd(t, "HSET", "{n}"+meta, "=", test.recorded)
		p.mustExtend([]driver.AcquireRequest{c})
		if record := server.MustCmd(t, "HGET", "{n}"+meta, "="); record != test.want {
			t.Errorf("the record %q becomes %q, want %q", test.recorded, record, test.want)
		}
	}
}
