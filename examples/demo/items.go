package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
)

// Scene 2. Many buyers want more items than there are. Each checks the stock before buying. Without
// a lock, too many items are sold.

type itemResult struct {
	stock, sold, remaining int64
	took                   time.Duration
}

func (i itemResult) oversold() int64 { return max(i.sold-i.stock, 0) }

func sceneItems(ctx context.Context, c *teamSet, size demoSize, out *printer, seen *outcome) (err error) {
	out.scene(2, "Last items", "%d buyers want %d each, %d in stock", size.Teams*size.Buyers, size.PerBuyer, size.Stock)
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

func (i itemResult) cells() []cell {
	return []cell{count(i.sold), count(i.remaining), count(i.oversold()).markBad(i.oversold() != 0), span(i.took)}
}

func sellItems(ctx context.Context, c *teamSet, size demoSize, locked bool) (itemResult, error) {
	stock := c.data.number("stock")
	if err := stock.set(ctx, size.Stock); err != nil {
		return itemResult{}, err
	}
	j := job{Task: "buy", Locked: locked, Workers: size.Buyers, Times: size.PerBuyer}
	reports, took, err := c.runAllTimed(ctx, j)
	if err != nil {
		return itemResult{}, err
	}
	seen := itemResult{stock: size.Stock, took: took}
	for _, r := range reports {
		seen.sold += r.Count
	}
	seen.remaining, err = stock.get(ctx)
	return seen, err
}

// buy is a team's task: each buyer buys an item after another.
func buy(ctx context.Context, l *local, j job) (report, error) {
	stock, lock := l.data.number("stock"), l.lock(j, "stock")
	var bought atomic.Int64
	err := concurrently(ctx, j.Workers, func(ctx context.Context, _ int) error {
		for range j.Times {
			got, err := dibs.Call(ctx, lock, func(ctx context.Context) (bool, error) { return removeOne(ctx, stock) })
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

// removeOne removes an item from the stock, if there is any.
func removeOne(ctx context.Context, stock number) (bool, error) {
	left, err := stock.get(ctx)
	if err != nil || left <= 0 {
		return false, err
	}
	think()
	return true, stock.set(ctx, left-1)
}
