package dibsprom_test

import (
	"context"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

// emptyHooks returns hooks that do nothing. Their cost is the calls'.
func emptyHooks() dibs.Hooks {
	return dibs.Hooks{
		Queued:     func(context.Context, dibs.Queued) {},
		AcquireEnd: func(context.Context, dibs.AcquireEnd) {},
		Lost:       func(context.Context, dibs.Lost) {},
		Released:   func(context.Context, dibs.Released) {},
	}
}

// BenchmarkOverhead measures a lock and an unlock in memory: without hooks, with empty hooks, with
// metrics, and with native histograms.
func BenchmarkOverhead(b *testing.B) {
	native := dibsprom.Config{NativeHistograms: true}
	for _, c := range []struct {
		name    string
		options []dibs.Option
	}{
		{"bare", nil},
		{"empty", []dibs.Option{dibs.Observe(emptyHooks())}},
		{"dibs", []dibs.Option{dibs.Observe(newMetrics(b, prometheus.NewRegistry(), dibsprom.Config{}).Hooks())}},
		{"native", []dibs.Option{dibs.Observe(newMetrics(b, prometheus.NewRegistry(), native).Hooks())}},
	} {
		b.Run(c.name, func(b *testing.B) {
			locks := dibs.New(memstore.New(), c.options...)
			defer locks.Close()
			m := locks.Mutex("order:4711")
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				lease, err := m.Lock(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHooks measures only the hooks for a lock and an unlock, by all goroutines on the same
// class.
func BenchmarkHooks(b *testing.B) {
	hooks := newMetrics(b, prometheus.NewRegistry(), dibsprom.Config{}).Hooks()
	ctx, info := context.Background(), dibs.LockInfo{Names: []string{"order:4711"}, Kind: dibs.KindMutex}
	pair := func() {
		hooks.AcquireEnd(ctx, dibs.AcquireEnd{LockInfo: info, Waited: 1000})
		hooks.Released(ctx, dibs.Released{LockInfo: info, Held: 1000})
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pair()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				pair()
			}
		})
	})
}
