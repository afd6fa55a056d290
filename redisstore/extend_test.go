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

// A renewal writes only the lock's TTL. There are no metadata.
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
	renewals := p.renewals(held...)
	p.mustRenew(renewals) // loads the script
	for i := range renewals {
		renewals[i].TTL += time.Second
	}
	dirty := changes(t, server)
	each, runs := countCommands(t, server, func() { p.mustRenew(renewals) })
	if runs != 1 || each > most*leases+1 {
		t.Errorf("%d calls of %d commands for %d leases", runs, each, leases)
	}
	if n := changes(t, server) - dirty; n != leases {
		t.Errorf("%d changes for %d leases", n, leases)
	}
	if n := server.MustCmd(t, "EXISTS", "{n0}"+meta, "{n1}"+meta); n != int64(0) {
		t.Error("a renewal writes metadata")
	}
}

// The server can store another lease than the client expects: shared, as after a weight change
// without a reply, lost, or with another type.
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
	errs := p.s.Extend(t.Context(), p.renewals(mine, reader, other, lost, foreign))
	for i, want := range []error{nil, nil, driver.ErrLost, driver.ErrLost, dibs.ErrWrongType} {
		if !errors.Is(errs[i], want) {
			t.Errorf("lease %d: %v, want %v", i, errs[i], want)
		}
	}
	if ms, _ := server.MustCmd(t, "PTTL", "reader").(int64); ms < time.Minute.Milliseconds() {
		t.Errorf("the reader's lease was not extended: %d ms", ms)
	}
}

func (p *testClient) mustRenew(renewals []driver.ExtendRequest) {
	p.t.Helper()
	if err := errors.Join(p.s.Extend(p.t.Context(), renewals)...); err != nil {
		p.t.Fatal(err)
	}
}

// renewals are extensions with the stored fences.
func (p *testClient) renewals(held ...driver.AcquireRequest) []driver.ExtendRequest {
	p.t.Helper()
	requests := extensions(held)
	for i := range requests {
		if state, err := p.s.Inspect(p.t.Context(), requests[i].Name); err == nil && len(state.Holders) == 1 {
			requests[i].Fence = max(state.Holders[0].Fence, 1)
		}
	}
	return requests
}

func (p *testClient) mustExtend(held []driver.AcquireRequest) {
	p.t.Helper()
	for i, err := range p.extend(held...) {
		if err != nil {
			p.t.Fatalf("extend %s: %v", held[i].Name, err)
		}
	}
}

// changes returns a server's number of changes since it saved its data.
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

// Extend must raise a lock's TTL and never lower it. The record for a user's token must live as
// long, on servers with and without the option GT.
func TestExtendRaisesTheTTL(t *testing.T) {
	t.Parallel()
	for server, script := range map[string]string{"since 7.0": "", "before 7.0": before7} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			extend := func(seconds int) {
				t.Helper()
				ttl := fmt.Sprint(seconds * 1000)
				reply, _ := server.MustCmd(t, "EVAL", script+wire.Plain().Extend.Text, "4", "made", "own", "{own}"+meta, "{own}"+shared,
					"1", "7 host:1:c:x", ttl, "worker", ttl, "0 7 host:1:c").([]any)
				if len(reply) != 2 || reply[1] != "11" {
					t.Fatalf("%v", reply)
				}
			}
			want := func(seconds int64) {
				t.Helper()
				for _, key := range []string{"made", "own"} {
					if lock, _ := server.MustCmd(t, "PTTL", key).(int64); lock > seconds*1000 || lock < seconds*1000-500_000 {
						t.Errorf("%s expires in %d ms, want %d s", key, lock, seconds)
					}
				}
				lock, _ := server.MustCmd(t, "PTTL", "own").(int64)
				if ms, _ := server.MustCmd(t, "PTTL", "{own}"+meta).(int64); ms < lock-1000 {
					t.Errorf("the lock expires in %d ms, its metadata in %d ms", lock, ms)
				}
				if record := server.MustCmd(t, "HGET", "{own}"+meta, "="); record != "7 host:1:c worker" {
					t.Errorf("the record is %q", record)
				}
			}
			server.MustCmd(t, "SET", "made", "7 host:1:c:x", "PX", "1000000")
			server.MustCmd(t, "SET", "own", "worker", "PX", "1000000")
			extend(2000)
			want(2000)
			extend(1000)
			want(2000)
			extend(2000) // perhaps within the same ms
			want(2000)
			extend(9000)
			want(9000)
			server.MustCmd(t, "PERSIST", "made")
			server.MustCmd(t, "PERSIST", "own")
			extend(3000)
			want(3000)
			server.MustCmd(t, "DEL", "{own}"+meta)
			extend(3001)
			want(3001)
		})
	}
}

// An extension writes the larger fence to a lock's value. If it was sent before the last fence
// was issued, or has no fence, it does not change the fence.
func TestExtensionWritesTheLargerFence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	c := p.request("n")
	for _, test := range []struct {
		stored string
		fence  uint64
		want   string // or none, if the token does not hold
	}{
		{"5 TOKEN", 5, "5 TOKEN"},
		{"5 TOKEN", 4, "5 TOKEN"},
		{"5 TOKEN", 0, "5 TOKEN"},
		{"5 TOKEN", 10, "10 TOKEN"},
		{"1700000000000009 TOKEN", 1700000000000010, "1700000000000010 TOKEN"},
		{"TOKEN", 5, "5 TOKEN"},
		{"5 TOKEN reserved", 5, ""},
		{"TOKEN reserved", 5, ""},
		{"5 TOKENx", 5, ""},
		{"5 xTOKEN", 5, ""},
		{"5TOKEN", 5, ""},
		{"5x TOKEN", 5, ""},
	} {
		stored, want := strings.Replace(test.stored, "TOKEN", c.Token, 1), strings.Replace(test.want, "TOKEN", c.Token, 1)
		server.MustCmd(t, "SET", "n", stored, "PX", "1000")
		r := extensions([]driver.AcquireRequest{c})
		r[0].Fence = test.fence
		switch err := p.s.Extend(t.Context(), r)[0]; {
		case want == "":
			wantIs(t, test.stored, err, driver.ErrLost)
			want = stored
		case err != nil:
			t.Errorf("%q, fence %d: %v", test.stored, test.fence, err)
		default:
			if ms, _ := server.MustCmd(t, "PTTL", "n").(int64); ms < 50_000 {
				t.Errorf("%q, fence %d: the lock expires in %d ms", test.stored, test.fence, ms)
			}
		}
		if value := server.MustCmd(t, "GET", "n"); value != want {
			t.Errorf("%q, fence %d: the value is %q, want %q", test.stored, test.fence, value, want)
		}
	}
}

// Each extension should write the record for a user's token, or for a lease extended by another
// client, unless the record has a larger fence: then the extension is late.
func TestExtensionWritesTheRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	own, attached := p.request("own"), p.request("attached")
	own.Token, attached.Client = "worker", "host:9:another"
	p.mustAcquire(own)
	made := attached
	made.Client = p.client
	p.mustAcquire(made)
	for _, c := range []driver.AcquireRequest{own, attached} {
		value := server.MustCmd(t, "GET", c.Name)
		for recorded, want := range map[string]string{
			"9 " + c.Client + " " + c.Token: "9 " + c.Client + " " + c.Token,
			"9 host:1:d " + c.Token:         "9 host:1:d " + c.Token,
			"1 host:1:d " + c.Token:         "2 " + c.Client + " " + c.Token,
			"9 host:1:d other":              "2 " + c.Client + " " + c.Token,
			"?":                             "2 " + c.Client + " " + c.Token,
		} {
			server.MustCmd(t, "HSET", "{"+c.Name+"}"+meta, "=", recorded)
			r := extensions([]driver.AcquireRequest{c})
			r[0].Fence = 2
			if err := p.s.Extend(t.Context(), r)[0]; err != nil {
				t.Fatal(err)
			}
			if record := server.MustCmd(t, "HGET", "{"+c.Name+"}"+meta, "="); record != want {
				t.Errorf("%s: the record %q becomes %q, want %q", c.Name, recorded, record, want)
			}
		}
		if have := server.MustCmd(t, "GET", c.Name); have != value {
			t.Errorf("the value %q becomes %q", value, have)
		}
	}
}
