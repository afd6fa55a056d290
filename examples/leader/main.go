// Leader is a service with a single working replica, while the others stand by. It stops
// cleanly on SIGTERM: the work ends, and the next replica leads at once.
//
//	DIBS_URL=redis://localhost:6379 go run ./examples/leader
package main

import (
	"context"
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
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	// After a crash the others wait for the TTL. 10 s is a compromise for elections.
	locks := dibs.New(store, dibs.TTL(10*time.Second), dibs.Observe(hooks()))
	defer locks.Close()
	slog.Info("standing by", "locks", store.Description)
	return lead(ctx, locks, func(ctx context.Context) error {
		term, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		slog.InfoContext(ctx, "leading", "term", term)
		<-ctx.Done() // the work: it must end with ctx
		slog.Info("stopped", "because", context.Cause(ctx))
		return nil
	})
}

// lead stands for election until ctx ends, and runs work in each term. When ctx ends, it returns
// only after the work returned and the lock is released.
func lead(ctx context.Context, locks *dibs.Client, work func(ctx context.Context) error) error {
	return locks.Election("scheduler").Run(ctx, work)
}

// hooks log the events that an election's operator needs.
func hooks() dibs.Hooks {
	return dibs.Hooks{
		Lost: func(ctx context.Context, e dibs.Lost) {
			slog.ErrorContext(ctx, "term lost", "term", e.Fence, "after", e.Held, "err", e.Err)
		},
		TermFailed: func(ctx context.Context, e dibs.TermFailed) {
			slog.WarnContext(ctx, "campaign failed", "again in", e.RetryIn, "err", e.Err)
		},
	}
}
