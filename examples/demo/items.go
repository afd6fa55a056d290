package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
)

// Scene 2. Many buyers want more than there is. Each looks whether something is
// left before it buys, and yet too much is sold.

type items struct {
	stock, sold, left int64
	took              time.Duration
}

func (i items) oversold() int64 { return max(i.sold-i.stock, 0) }

func sceneItems(ctx context.Context, c *teamSet, size demoSize, out *printer, seen *outcome) (err error) {
	out.scene(2, "Last items", "%d buyers want %d each, %d in stock", size.Teams*size.Buyers, size.Wanted, size.Stock)
	out.columns("sold", "left", "oversold", "time")
	if seen.items, err = sellItems(ctx, c, size, false); err != nil {
		return err
	}
	out.row("without a lock", seen.items.cells()...)
	if seen.lockedItems, err = sellItems(ctx, c, size, true); err != nil {
		return err
	}
	out.row("with dibs", seen.lockedItems.cells()...)
	return nil
}

func (i items) cells() []cell {
	return []cell{count(i.sold), count(i.left), count(i.oversold()).markBad(i.oversold() != 0), span(i.took)}
}

func sellItems(ctx context.Context, c *teamSet, size demoSize, locked bool) (items, error) {
	stock := c.data.number("stock")
	if err := stock.set(ctx, size.Stock); err != nil {
		return items{}, err
	}
	j := job{Part: "buy", Locked: locked, Workers: size.Buyers, Times: size.Wanted}
	reports, took, err := c.timed(ctx, j)
	if err != nil {
		return items{}, err
	}
	seen := items{stock: size.Stock, took: took}
	for _, r := range reports {
		seen.sold += r.Count
	}
	seen.left, err = stock.get(ctx)
	return seen, err
}

// buy is what a team does: each of its buyers takes one after another.
func buy(ctx context.Context, l *local, j job) (report, error) {
	stock, lock := l.data.number("stock"), l.lock(j, "stock")
	var bought atomic.Int64
	err := concurrently(ctx, j.Workers, func(ctx context.Context, _ int) error {
		for range j.Times {
			got, err := dibs.Call(ctx, lock, func(ctx context.Context) (bool, error) { return takeOne(ctx, stock) })
			if err != nil {
				return err
			}
			if got {
				bought.Add(1)
			}
		}
		return nil
	})
	return report{Count: bought.Load()}, err
}

// takeOne takes one if there is one.
func takeOne(ctx context.Context, stock number) (bool, error) {
	left, err := stock.get(ctx)
	if err != nil || left <= 0 {
		return false, err
	}
	think()
	return true, stock.set(ctx, left-1)
}
