// Worker runs a job each minute, on however many machines it is started: a single machine
// runs it each time.
//
//	DIBS_URL=redis://localhost:6379 go run ./examples/worker
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DIBS_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	locks := dibs.New(store)
	defer locks.Close()
	slog.Info("started", "locks", store.Description)
	work(ctx, locks, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		slog.InfoContext(ctx, "report", "fence", fence)
		return err
	})
	return nil
}

const (
	every = time.Minute
	// The machines' clocks differ, so each starts the job at another moment. A run keeps the name
	// for most of the interval: no late machine runs the job again.
	keep = 50 * time.Second
)

// work runs the job at each full minute until ctx ends.
func work(ctx context.Context, locks *dibs.Client, job func(ctx context.Context) error) {
	// A job that hangs must not keep the name for ever.
	report := locks.Once("report", keep, dibs.MaxHold(10*time.Minute))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(time.Now().Truncate(every).Add(every))):
		}
		err := report.Do(ctx, job)
		var do *dibs.DoError
		switch {
		case errors.As(err, &do) && do.Ran: // first: the job may return an ErrSkipped of its own
			slog.ErrorContext(ctx, "report failed", "err", err)
		case errors.Is(err, dibs.ErrSkipped):
			slog.DebugContext(ctx, "another machine has the report")
		case err != nil:
			slog.ErrorContext(ctx, "report did not run", "err", err)
		}
	}
}
