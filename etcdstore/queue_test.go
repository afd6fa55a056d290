package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// randomQueue returns a queue of entries with random weights.
func randomQueue(random *rand.Rand) (q queue) {
	for i := range random.IntN(8) {
		q = append(q, randomEntry(random, int64(i+1)))
	}
	return q
}

func randomEntry(random *rand.Rand, created int64) entry {
	limit := 1 + random.IntN(4)
	return entry{
		value: value{Token: fmt.Sprint(created), Weight: 1 + random.IntN(limit), Limit: limit, Several: random.IntN(8) == 0, Queued: random.IntN(2) == 0},
		key:   fmt.Sprint(created), created: created, changed: created,
	}
}

// Holders exclude each other by their weights. A holder stays a holder when entries join or leave.
func TestHolders(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		q := randomQueue(random)
		granted := q.granted()
		held := 0
		for i, e := range q[:granted] {
			held += e.Weight
			if held > e.Limit || granted > 1 && e.exclusive() {
				t.Fatalf("%+v: holder %d does not fit", q[:granted], i)
			}
		}
		if len(q) > 0 && granted == 0 {
			t.Fatalf("%+v: no holder", q)
		}
		if more := append(q[:len(q):len(q)], randomEntry(random, 100)); more.granted() < granted {
			t.Fatalf("%+v: %d holders, and %d when another joined", q, granted, more.granted())
		}
		if len(q) == 0 {
			continue
		}
		left := random.IntN(len(q))
		rest := append(q[:left:left], q[left+1:]...)
		want := granted
		if left < granted {
			want--
		}
		if rest.granted() < want {
			t.Fatalf("%+v: %d holders, and %d when %d left", q, granted, rest.granted(), left)
		}
		if n := len(q.holders()) + len(q.waiters()); n != len(q) {
			t.Fatalf("%+v: %d holders and waiters", q, n)
		}
	}
}

// A resized lease fits beside the other holders, and all of them stay holders.
func TestResizedFits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		q := randomQueue(random)
		granted := q.granted()
		if granted == 0 {
			continue
		}
		i, to := random.IntN(granted), randomEntry(random, 100)
		if _, fits := q.fitsResized(i, driver.AcquireRequest{Weight: to.Weight, Limit: to.Limit}); !fits {
			continue
		}
		after := append(queue(nil), q...)
		after[i].Weight, after[i].Limit = to.Weight, to.Limit
		held := 0
		for _, e := range after[:granted] {
			held += e.Weight
		}
		if after.granted() < granted || held > to.Limit || granted > 1 && to.exclusive() {
			t.Fatalf("%+v: entry %d resized to %d of %d", q, i, to.Weight, to.Limit)
		}
	}
}

// Any value of another program is an entry that excludes all others.
func FuzzEntry(f *testing.F) {
	f.Add("id", []byte(`{"dibs":"t","client":"c","weight":1,"limit":1,"ttl":2000}`))
	f.Add("id", []byte(`{"dibs":"t","weight":-1,"limit":9223372036854775807,"ttl":9223372036854775807}`))
	f.Add("a/b", []byte("null"))
	f.Fuzz(func(t *testing.T, id string, text []byte) {
		e, ok := newEntry("n/", &mvccpb.KeyValue{Key: []byte("n/" + id), Value: text, CreateRevision: 1})
		if !ok {
			return
		}
		if e.Weight < 1 || e.Weight > e.Limit || e.ttl() < 0 || e.foreign && !e.exclusive() {
			t.Errorf("%+v", e)
		}
		var again value
		if !e.foreign && (json.Unmarshal([]byte(e.value.String()), &again) != nil || again != e.value) {
			t.Errorf("%+v, want %+v", again, e.value)
		}
	})
}

// An entry whose end was requested cannot be used again: the request may arrive later.
func TestEndingRecord(t *testing.T) {
	t.Parallel()
	rs := &records{all: make(map[recordKey]*record), ids: newIDs()}
	r := record{name: "n", token: "t", expires: time.Second}
	if !rs.add(&r, "n/") || rs.add(&record{name: "n", token: "t"}, "n/") {
		t.Fatal("want a single record for a token")
	}
	if over, next := rs.expired(time.Second - 1); len(over) != 0 || next != time.Second {
		t.Fatalf("%v, %v before the end", over, next)
	}
	if over, next := rs.expired(time.Second); len(over) != 1 || next != 0 {
		t.Fatalf("%v, %v at the end", over, next)
	}
	if rs.update(r, func(*record) {}) {
		t.Error("the record was updated while its entry is being ended")
	}
	if over, _ := rs.expired(time.Hour); len(over) != 0 {
		t.Errorf("%v is ended twice at once", over)
	}
}

// A removed record does not come back, and its key is free for a single entry.
func TestRemovedRecord(t *testing.T) {
	t.Parallel()
	rs := &records{all: make(map[recordKey]*record), ids: newIDs()}
	old := record{name: "n", token: "t"}
	rs.add(&old, "n/")
	for i := range 2 {
		if _, ok := rs.remove(old); ok != (i == 0) {
			t.Fatalf("removal %d: %v", i, ok)
		}
	}
	first, second := record{name: "n", token: "t"}, record{name: "n", token: "u"}
	rs.add(&first, "n/")
	rs.add(&second, "n/")
	if first.key == second.key {
		t.Errorf("two entries with the key %q", first.key)
	}
	if rs.change(old, func(*record) {}) {
		t.Error("a removed record was changed")
	}
}

// A connection that ends may have sent the request.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		status.Error(codes.Canceled, "grpc: the client connection is closing"),
		status.Error(codes.Unavailable, "transport is closing"),
		context.Canceled, context.DeadlineExceeded,
	} {
		if hasNoEffect(err) {
			t.Errorf("%v: want an unknown outcome", err)
		}
	}
	if err := unavailable("acquire", "n", status.Error(codes.Canceled, "grpc: the client connection is closing")); !errors.Is(err, driver.ErrDisconnected) {
		t.Errorf("%v, want ErrDisconnected", err)
	}
}
