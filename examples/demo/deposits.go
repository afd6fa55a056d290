package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// Scene 1. Many workers add to the same balance. Reading, working and writing are three steps: a
// worker that read before another worker's write overwrites that write.

type depositResult struct {
	expected, actual int64
	took             time.Duration
}

func (d depositResult) lost() int64 { return d.expected - d.actual }

func sceneDeposits(ctx context.Context, c *teamSet, size demoSize, out *printer, seen *outcome) (err error) {
	out.scene(1, "Deposits", "%d workers, %d deposits of 1 each, one balance", size.Teams*size.Workers, size.Deposits)
	out.columns("expected", "actual", "lost", "time")
	if seen.deposits, err = makeDeposits(ctx, c, size, false); err != nil {
		return err
	}
	out.row("without a lock", seen.deposits.cells()...)
	if seen.lockedDeposits, err = makeDeposits(ctx, c, size, true); err != nil {
		return err
	}
	out.row("with dibs", seen.lockedDeposits.cells()...)
	return nil
}

func (d depositResult) cells() []cell {
	return []cell{count(d.expected), count(d.actual), count(d.lost()).markBad(d.lost() != 0), span(d.took)}
}

func makeDeposits(ctx context.Context, c *teamSet, size demoSize, locked bool) (depositResult, error) {
	balance := c.data.number("balance")
	if err := balance.set(ctx, 0); err != nil {
		return depositResult{}, err
	}
	j := job{Task: "deposit", Locked: locked, Workers: size.Workers, Times: size.Deposits}
	_, took, err := c.runAllTimed(ctx, j)
	if err != nil {
		return depositResult{}, err
	}
	actual, err := balance.get(ctx)
	return depositResult{expected: int64(size.Teams * size.Workers * size.Deposits), actual: actual, took: took}, err
}

// deposit is a team's task: each worker makes deposits.
func deposit(ctx context.Context, l *local, j job) (report, error) {
	balance, lock := l.data.number("balance"), l.lock(j, "balance")
	return report{}, concurrently(ctx, j.Workers, func(ctx context.Context, _ int) error {
		for range j.Times {
			err := lock.Do(ctx, func(ctx context.Context) error { return addTo(ctx, balance, 1) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func addTo(ctx context.Context, n number, amount int64) error {
	value, err := n.get(ctx)
	if err != nil {
		return err
	}
	think()
	return n.set(ctx, value+amount)
}

// think simulates the work between reading and writing.
func think() { time.Sleep(rand.N(300 * time.Microsecond)) }
