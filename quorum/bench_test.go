package quorum_test

import (
	"context"
	"testing"

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
	s, err := quorum.Config{Trusting: true}.New(nodes...)
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
