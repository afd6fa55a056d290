package wire

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
)

// vectors are examples of the format for implementations in other languages. docs/spec.md links
// to them.
func vectors() string {
	var b strings.Builder
	f := Format{Prefix: "lock:"}
	for _, example := range []struct{ prefix, name string }{
		{"lock:", "order:42"}, {"lock:", "{u7}:cart"}, {"", "order:42"}, {"{shop}:", "a"}, {"", "a{"},
	} {
		k := Format{Prefix: example.prefix}.Keys(example.name)
		fmt.Fprintf(&b, "keys, prefix %q, name %q: slot %d\n", example.prefix, example.name, k.Route.Slot)
		for _, key := range k.list() {
			fmt.Fprintf(&b, "  %q\n", key)
		}
	}
	const token, client = "web-7:211:q3Zk:x1:daily", "web-7:211:q3Zk"
	mutex := driver.AcquireRequest{Name: "order:42", Token: token, Client: client, Seq: 26, TTL: 30 * time.Second, Weight: 1, Limit: 1, Queue: true}
	reader, try, several, waiter := mutex, mutex, mutex, mutex
	waiter.Ticket = 1_700_000_000_000_003
	reader.Limit, try.Queue, several.With = driver.Unlimited, false, []string{"order:43"}
	voting := mutex
	voting.Vote = &driver.Vote{Ticket: 1_700_000_000_000_007, Fence: 1_700_000_000_000_009, RecoveryWindow: time.Minute}
	release := driver.ReleaseRequest{Name: "order:42", Token: token, Fence: 1_700_000_000_000_001}
	reserved := release
	reserved.Reserve = time.Second
	lease := driver.ExtendRequest{Name: "order:42", Token: token, Client: client, Fence: 1_700_000_000_000_001, TTL: 30 * time.Second, Weight: 1, Limit: driver.Unlimited}
	for _, example := range []struct {
		what   string
		encode func(r *Request)
	}{
		{"acquire, a mutex that waits", func(r *Request) { f.Acquire(r, mutex, false) }},
		{"acquire, a reader", func(r *Request) { f.Acquire(r, reader, false) }},
		{"acquire, a try", func(r *Request) { f.Acquire(r, try, false) }},
		{"acquire, a heartbeat", func(r *Request) { f.Acquire(r, waiter, true) }},
		{"acquire_all, two names", func(r *Request) { f.AcquireAll(r, several, false) }},
		{"vote", func(r *Request) { f.Vote(r, voting) }},
		{"release", func(r *Request) { f.Release(r, release, "", false) }},
		{"release, reserved for 1 s", func(r *Request) { f.Release(r, reserved, "", false) }},
		{"release, a cancel", func(r *Request) {
			f.Release(r, driver.ReleaseRequest{Name: mutex.Name, Token: token}, Entry(mutex), false)
		}},
		{"extend, a reader", func(r *Request) { f.Extend(r, []driver.ExtendRequest{lease}, []int{0}) }},
		{"extend, a mutex", func(r *Request) {
			exclusive := lease
			exclusive.Limit = 1
			f.Extend(r, []driver.ExtendRequest{exclusive}, []int{0})
		}},
		{"extend, a mutex with a token of the user's", func(r *Request) {
			chosen := lease
			chosen.Token, chosen.Limit = "worker-7", 1
			f.Extend(r, []driver.ExtendRequest{chosen}, []int{0})
		}},
		{"extend_key", func(r *Request) { f.ExtendKey(r, lease, "lock") }},
		{"resize, to a writer", func(r *Request) {
			writer := reader
			writer.Weight = driver.Unlimited
			f.Resize(r, writer)
		}},
		{"revoke", func(r *Request) {
			f.Revoke(r, driver.RevokeRequest{Name: "order:42", Fence: lease.Fence, Reason: "maintenance"})
		}},
		{"wanted", func(r *Request) {
			f.Wanted(r, driver.WantedRequest{Name: "order:42", Token: token, Client: client})
		}},
		{"fences", func(r *Request) {
			f.ReserveFences(r, driver.FenceRequest{Name: "order:42", Token: token, Count: 64, Least: lease.Fence + 64})
		}},
		{"announce, two names", func(r *Request) { f.Announce(r, []string{"order:42", "order:43"}) }},
		{"inspect, two names", func(r *Request) { f.Inspect(r, []string{"order:42", "order:43"}, 100) }},
		{"describe", func(r *Request) { f.Describe(r, []string{"order:42"}) }},
		{"revoke_foreign, a lock of Redisson", func(r *Request) {
			v := foreign.Value{Key: "lock:order:42", Type: "hash", Items: []foreign.Item{{Name: "8743c9c0-0795-4907-87fd-6c719a6b4586:40", Value: "1"}}, Size: 1}
			f.RevokeForeign(r, "order:42", v, foreign.Describe(v).Release, time.Time{})
		}},
		{"revoke_foreign, a string", func(r *Request) {
			v := foreign.Value{Key: "lock:order:42", Type: "string", Items: []foreign.Item{{Name: "worker 7"}}, Size: 8}
			f.RevokeForeign(r, "order:42", v, foreign.Rule{}, time.UnixMilli(1_700_000_030_000))
		}},
	} {
		r := new(Request)
		example.encode(r)
		r.SetUntil("1700000000999999")
		fmt.Fprintf(&b, "%s: %d keys\n", example.what, len(r.Keys))
		for _, arg := range r.Args {
			if arg == r.Args[len(r.Args)-1] && strings.HasPrefix(example.what, "vote") {
				arg = "RANDOM"
			}
			fmt.Fprintf(&b, "  %q\n", arg)
		}
	}
	for _, text := range []string{
		"1700000000000009 1700000000000007 1700000000000008 " + token, "0 0 0 " + token, "0 0 ! " + token, "0 1700000000000001 0 " + token + "\nmaintenance",
		"1700000000000009 1700000000000007 @K3J5Q " + token,
	} {
		m, ok := ParseMessage(text)
		e := m.Event
		fmt.Fprintf(&b, "message %q:\n  %s, token %q, fence %d, ticket %d, node %q, reason %q, sent %d, valid %v\n",
			text, kindOf[e.Kind], e.Token, e.Fence, e.Ticket, e.Vote.Node, e.Reason, m.Sent, ok)
	}
	for _, reply := range []any{
		int64(1_700_000_000_000_001),
		[]any{int64(1_700_000_000_000_001), "1700000000000009"},
		[]any{int64(1_700_000_000_000_001), int64(0)},
		[]any{int64(1_700_000_000_000_001), []any{"1700000000000007", int64(2), int64(29_500), "1700000000000001 " + token}},
		[]any{int64(1_700_000_000_000_001), []any{"1700000000000007", int64(2), int64(29_500), token}},
		[]any{int64(1_700_000_000_000_001), []any{"0", int64(0), int64(900), "1700000000000001 " + token + ReservedSuffix}},
	} {
		a, void, err := ParseAcquire(reply)
		fmt.Fprintf(&b, "reply of acquire %v:\n  held %v, fence %d, ticket %d, position %d, remaining %v, holder %q, reserved %v, void %v, error %v\n",
			reply, a.Held, a.Fence, a.Ticket, a.Position, a.Remaining, a.Holder, a.Reserved, void, err)
	}
	return b.String()
}

var kindOf = map[driver.EventKind]string{driver.EventGranted: "granted", driver.EventRetry: "retry", driver.EventRevoked: "revoked", driver.EventWanted: "wanted"}

// The examples do not change by accident.
func TestVectors(t *testing.T) {
	const file = "testdata/vectors.txt"
	have := vectors()
	if *updateFlag {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("the format differs from %s: go test -update writes it. Now:\n%s", file, have)
	}
}
