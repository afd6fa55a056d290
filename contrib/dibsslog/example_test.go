package dibsslog_test

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsslog"
	"github.com/dibslock/dibs/memstore"
)

// A program logs each lost lease, waits of 5 s or longer, and no Unlock.
func ExampleHooks() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: stable})
	locks := dibs.New(memstore.New(), dibs.Observe(dibsslog.Hooks(slog.New(handler), dibsslog.Config{
		SlowWait: 5 * time.Second,
		Released: dibsslog.Off,
	})))
	err := locks.Mutex("order:42").Do(context.Background(), func(context.Context) error { return nil })
	if err != nil {
		panic(err)
	}
	if _, err := locks.Mutex("report").Lock(context.Background()); err != nil {
		panic(err)
	}
	locks.Close() // ends the lease on "report"
	// Output:
	// level=DEBUG msg="lock acquired" name=order:42
	// level=DEBUG msg="lock acquired" name=report
	// level=INFO msg="lease ended by Close" name=report reason=closed
}

// stable removes data that differs from run to run, and some more to shorten the lines.
func stable(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "fence", "waited", "held", "kind", "err":
		return slog.Attr{}
	}
	return a
}
