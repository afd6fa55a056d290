package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
)

func BenchmarkPair(b *testing.B) {
	var nodes []driver.Voter
	for range 5 {
		nodes = append(nodes, memstore.New())
	}
	s, err := quorum.New(nodes, quorum.DurableNodes())
	if err != nil {
		b.Fatal(err)
	}
	c := dibs.New(s)
	defer c.Close()
	m := c.Mutex("a")
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInspectAll merges the states for 10,000 held names on three nodes.
func BenchmarkInspectAll(b *testing.B) {
	var nodes []driver.Voter
	for range 3 {
		nodes = append(nodes, memstore.New())
	}
	s, err := quorum.New(nodes, quorum.DurableNodes())
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
		for _, n := range nodes {
			r := driver.AcquireRequest{Name: names[i], Token: clientID + ":m-abcdefgh", Client: clientID, TTL: time.Hour, Weight: 1, Limit: 1}
			if _, err := n.Acquire(b.Context(), r); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		states, err := s.InspectAll(b.Context(), names)
		if err != nil || states[len(names)-1].Holding != 1 {
			b.Fatalf("%+v, %v", states[len(names)-1], err)
		}
	}
}
