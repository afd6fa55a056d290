package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A demoSize says how much happens in the scenes.
type demoSize struct {
	Teams    int // of which each is one client, and on Redis one process
	Workers  int // in each team
	Deposits int // of each worker
	Stock    int64
	Buyers   int           // in each team
	Wanted   int           // by each buyer
	Queueing time.Duration // how long all workers want the same lock
	TTL      time.Duration // of the holder that stalls
}

var fullSize = demoSize{
	Teams: 4, Workers: 4, Deposits: 50,
	Stock: 100, Buyers: 8, Wanted: 5,
	Queueing: 2500 * time.Millisecond,
	TTL:      2 * time.Second,
}

// An outcome is what was seen in the scenes, without a lock and with dibs.
type outcome struct {
	deposits, lockedDeposits deposits
	items, lockedItems       items
	handoffs                 handoffs
	stall                    stall
}

// runScenes plays the scenes in order and says whether the promises were kept.
func runScenes(ctx context.Context, c *teamSet, size demoSize, out *printer) (seen outcome, err error) {
	out.opening(c.storeName, fmt.Sprintf("%d workers, %s", size.Teams*size.Workers, c.summary))
	for _, scene := range []func(context.Context, *teamSet, demoSize, *printer, *outcome) error{
		sceneDeposits, sceneItems, sceneHandoffs, sceneStall,
	} {
		if err := scene(ctx, c, size, out, &seen); err != nil {
			return seen, err
		}
	}
	if broken := seen.violations(); len(broken) > 0 {
		return seen, errors.New("promises not kept: " + strings.Join(broken, "; "))
	}
	out.closing("Nothing lost, nothing oversold, served in turn, the late write refused.")
	return seen, nil
}

// violations lists the promises of dibs that were not kept.
func (o *outcome) violations() (broken []string) {
	note := func(kept bool, format string, args ...any) {
		if !kept {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	note(o.lockedDeposits.lost() == 0, "%d deposits lost", o.lockedDeposits.lost())
	note(o.lockedItems.oversold() == 0, "%d items oversold", o.lockedItems.oversold())
	note(o.handoffs.outOfTurn == 0, "%d served out of turn", o.handoffs.outOfTurn)
	note(o.stall.ahead() > 0, "the next holder entered %v before the last was told", -o.stall.ahead())
	note(o.stall.refused, "a late write was accepted")
	return broken
}
