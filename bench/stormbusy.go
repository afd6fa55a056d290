package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/test/pgtest"
)

const (
	busyLeases = 20
	busyShare  = 0.1 // fraction of a processor, in a cgroup
)

// A busyCase is a computing process.
type busyCase struct {
	computing int // goroutines
	ttl       time.Duration
	limit     float64 // its fraction of a processor, or 0
}

// String names the case.
func (k busyCase) String() string {
	text := fmt.Sprintf("%d for %v", k.computing, k.ttl)
	if k.limit > 0 {
		text += fmt.Sprintf(" at %.0f %%", 100*k.limit)
	}
	return text
}

// busyCases returns the cases for a table. With a cgroup, the cases are the smallest number of
// goroutines, and a single goroutine.
func busyCases(c config) (cases []busyCase) {
	ttls := []time.Duration{c.scaledTTL(9 * time.Second), c.scaledTTL(30 * time.Second)}
	for _, ttl := range slices.Compact(ttls) {
		for _, n := range c.computing {
			cases = append(cases, busyCase{n, ttl, 0})
		}
		if canLimit() == nil {
			cases = append(cases, busyCase{1, ttl, busyShare}, busyCase{slices.Min(c.computing), ttl, busyShare})
		}
	}
	return cases
}

// busyStores are the stores in storm-busy. Each case also has a plain key in the same store.
var busyStores = []struct {
	name, plain string
	start       func() (*fixture, error)
	none        error
}{
	{"Redis", "PEXPIRE", func() (*fixture, error) { return newRedis(1) }, nil},
	{"PostgreSQL", "UPDATE", func() (*fixture, error) { return newPostgres() }, pgtest.ErrNoServer},
	{"local file", "a change of the time of a file", newLocal, nil},
}

// busy measures processes whose goroutines compute on a single processor.
func busy(_ *fixture, c config) (tables []*table, err error) {
	for _, store := range busyStores {
		t := &table{
			name: "storm-busy " + store.name,
			about: []string{
				fmt.Sprintf("A process with GOMAXPROCS=1 holds %d leases, while N goroutines compute. The case is N and the TTL; at %.0f %%: in a cgroup with this share of a processor.", busyLeases, 100*busyShare),
				fmt.Sprintf("plain lost: 1 if the process lost a key of its own, which it renews with %s each third of the TTL. plain ms: the longest of these.", store.plain),
				"excess: leases lost although that key was kept.",
			},
			load:    "case",
			columns: []column{{"lost", 0, maximum}, {"plain lost", 0, maximum}, {"plain ms", 0, maximum}, {"excess", 0, maximum}},
			bars:    []bar{atMost("excess", 0)},
		}
		tables = append(tables, t)
		if err := canLimit(); err != nil {
			t.notes = append(t.notes, "a share of a processor: skipped, because "+err.Error())
		}
		b, err := store.start()
		if store.none != nil && errors.Is(err, store.none) {
			skipped(err, t)
			continue
		}
		if err != nil {
			return nil, err
		}
		t.addBusy(b, c)
		b.close()
	}
	return tables, nil
}

func (t *table) addBusy(b *fixture, c config) {
	t.server = b.version
	for _, k := range busyCases(c) {
		if !t.announced(c, k.String()) {
			continue
		}
		row := t.row(k.String(), ours)
		r, err := b.compute(k)
		if err != nil { // the other cases' figures are not lost
			t.notes = append(t.notes, fmt.Sprintf("%v: failed: %v", k, err))
			continue
		}
		f := figures{"lost": float64(r.Lost), "plain lost": 0, "plain ms": millis(r.Longest), "excess": float64(r.Lost)}
		if r.PlainLost {
			f["plain lost"], f["excess"] = 1, 0
		}
		progress("  lost %d, plain key lost: %v", r.Lost, r.PlainLost)
		if r.Example != "" {
			t.notes = append(t.notes, fmt.Sprintf("%v: lost: %s", k, r.Example))
		}
		row.runs = []figures{f}
	}
}

// compute performs a run.
func (b *fixture) compute(k busyCase) (r busyReport, err error) {
	group, err := b.startWorkers(order{Job: "busy", Peer: ours + b.at, Addrs: b.addrs(), TTL: k.ttl, Name: b.name(), Count: busyLeases, Busy: k.computing, Procs: 1})
	defer group.stop()
	if err != nil {
		return r, err
	}
	if k.limit > 0 {
		g, err := newCPUGroup(k.limit, group.workers[0].cmd.Process.Pid)
		if err != nil {
			return r, err
		}
		defer g.close()
	}
	// A lease without renewal is lost after a TTL.
	from := now()
	win := window{From: from, To: from + 2*k.ttl + min(k.ttl, 10*time.Second)}
	if err := group.send(win); err != nil {
		return r, err
	}
	sleepUntil(win.To)
	if err := group.workers[0].receive(&r); err != nil {
		return r, err
	}
	group.stop()
	return r, b.clearAll()
}

// A busyReport is a busy process's result.
type busyReport struct {
	Lost      int
	Example   string // a lost lease's error
	PlainLost bool
	Longest   time.Duration // renewal of the plain key
}

// busyJob holds leases and a plain key while goroutines compute.
func busyJob(o order, p peer, t link) error {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	names, leases := make([]string, o.Count), make([]heldLease, o.Count)
	for i := range names {
		names[i] = o.heldName(strconv.Itoa(i))
	}
	if err := acquireAll(p.(renewingPeer), names, leases); err != nil {
		return err
	}
	key, err := newPlainKey(o)
	if err != nil {
		return err
	}
	var stop atomic.Bool
	var computing sync.WaitGroup
	for range o.Busy {
		computing.Go(func() { compute(&stop) })
	}
	key.keepUntil(w.To)
	r := busyReport{PlainLost: key.lost, Longest: key.longest}
	for _, lease := range leases {
		if err := lease.(dibsLease).lease.Err(); err != nil {
			r.Lost++
			r.Example = err.Error()
		}
	}
	stop.Store(true)
	computing.Wait()
	return t.out.Encode(r)
}

// compute uses a processor until stop.
func compute(stop *atomic.Bool) {
	sum := sha256.Sum256(nil)
	for !stop.Load() {
		for range 1000 {
			sum = sha256.Sum256(sum[:])
		}
	}
}

// A plainKey is a key with a TTL, renewed as in programs without a library.
type plainKey struct {
	ttl     time.Duration
	renew   func() (kept bool, err error)
	lost    bool
	longest time.Duration
}

// newPlainKey creates a key in the order's store.
func newPlainKey(o order) (*plainKey, error) {
	ctx, name := context.Background(), o.Name+":plain"
	k := &plainKey{ttl: o.TTL}
	switch _, store, _ := strings.Cut(o.Peer, "@"); store {
	case "":
		rdb := newEndpoint(o.Addrs, o.TTL).rdb
		k.renew = func() (bool, error) { return rdb.PExpire(ctx, name, o.TTL).Result() }
		return k, rdb.Set(ctx, name, "", o.TTL).Err()
	case "postgres":
		pool, err := openPool(newEndpoint(o.Addrs, o.TTL), 1)
		if err != nil {
			return nil, err
		}
		k.renew = func() (bool, error) {
			done, err := pool.Exec(ctx, "UPDATE bare_locks SET expires = now() + $2 WHERE name = $1 AND expires > now()", name, o.TTL)
			return done.RowsAffected() == 1, err
		}
		_, err = pool.Exec(ctx, "INSERT INTO bare_locks VALUES ($1, '', now() + $2)", name, o.TTL)
		return k, err
	}
	file := filepath.Join(filepath.Dir(o.Addrs[0]), name)
	k.renew = func() (bool, error) {
		info, err := os.Stat(file)
		if err != nil {
			return false, err
		}
		return time.Since(info.ModTime()) < o.TTL, os.Chtimes(file, time.Time{}, time.Now())
	}
	return k, os.WriteFile(file, nil, 0o600)
}

// keepUntil renews the key every third of its TTL.
func (k *plainKey) keepUntil(end time.Duration) {
	for now() < end {
		time.Sleep(min(k.ttl/3, end-now()))
		begin := now()
		kept, err := k.renew()
		k.longest = max(k.longest, now()-begin)
		k.lost = k.lost || err == nil && !kept
	}
}
