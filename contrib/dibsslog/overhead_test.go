package dibsslog_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsslog"
	"github.com/dibslock/dibs/memstore"
)

// BenchmarkOverhead measures lock and unlock in memory: without hooks, with disabled lines, and
// with lines discarded by the handler.
func BenchmarkOverhead(b *testing.B) {
	for _, c := range []struct {
		name    string
		options []dibs.Option
	}{
		{"bare", nil},
		{"not enabled", []dibs.Option{dibs.Observe(dibsslog.Hooks(slog.New(slog.DiscardHandler), dibsslog.Config{}))}},
		{"dibs", []dibs.Option{dibs.Observe(dibsslog.Hooks(slog.New(enabled{slog.DiscardHandler}), dibsslog.Config{}))}},
	} {
		b.Run(c.name, func(b *testing.B) {
			locks := dibs.New(memstore.New(), c.options...)
			defer locks.Close()
			b.ReportAllocs()
			for b.Loop() {
				lease, err := locks.Mutex("order:42").Lock(b.Context())
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

type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }
