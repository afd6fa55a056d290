package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A demoSize contains the scenes' sizes.
type demoSize struct {
	Teams     int // number of teams: each is a client, and on Redis a process
	Workers   int // in each team
	Deposits  int // for each worker
	Stock     int64
	Buyers    int           // in each team
	PerBuyer  int           // by each buyer
	QueueTime time.Duration // duration for scene 3
	TTL       time.Duration // for the holder that stalls
}

var fullSize = demoSize{
	Teams: 4, Workers: 4, Deposits: 50,
	Stock: 100, Buyers: 8, PerBuyer: 5,
	QueueTime: 2500 * time.Millisecond,
	TTL:       2 * time.Second,
}

// An outcome contains the scenes' results, without a lock and with dibs.
type outcome struct {
	deposits, lockedDeposits depositResult
	items, lockedItems       itemResult
	handoffs                 handoffResult
	stall                    stallResult
}

// runScenes runs the scenes in order. It returns an error if dibs violated a guarantee.
func runScenes(ctx context.Context, c *teamSet, size demoSize, out *printer) (seen outcome, err error) {
	out.header(c.storeName, fmt.Sprintf("%d workers, %s", size.Teams*size.Workers, c.summary))
	for _, scene := range []func(context.Context, *teamSet, demoSize, *printer, *outcome) error{
		sceneDeposits, sceneItems, sceneHandoffs, sceneStall,
	} {
		if err := scene(ctx, c, size, out, &seen); err != nil {
			return seen, err
		}
	}
	if broken := seen.violations(); len(broken) > 0 {
		return seen, errors.New("guarantees violated: " + strings.Join(broken, "; "))
	}
	out.footer("Nothing lost, nothing oversold, grants in order, the late write rejected.")
	return seen, nil
}

// violations lists the violated dibs guarantees.
func (o *outcome) violations() (broken []string) {
	note := func(kept bool, format string, args ...any) {
		if !kept {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	note(o.lockedDeposits.lost() == 0, "%d deposits lost", o.lockedDeposits.lost())
	note(o.lockedItems.oversold() == 0, "%d items oversold", o.lockedItems.oversold())
	note(o.handoffs.outOfOrder == 0, "%d grants out of order", o.handoffs.outOfOrder)
	note(o.stall.lead() > 0, "the next holder acquired the lock %v before the previous one was notified", -o.stall.lead())
	note(o.stall.rejected, "a late write was accepted")
	return broken
}
