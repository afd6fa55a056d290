package main

import (
	"fmt"
	"sync"
)

// orders is the repository. It stores the last write's fence with each order, and rejects
// writes with a smaller fence: such a writer lost its lease. In SQL this is an additional
// condition:
//
//	UPDATE orders SET paid = true, fence = $1 WHERE id = $2 AND fence <= $1
type orders struct {
	mu    sync.Mutex
	rows  map[string]row
	marks int
}

type row struct {
	paid  bool
	fence uint64
}

func newOrders() *orders { return &orders{rows: make(map[string]row)} }

func (o *orders) paid(order string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rows[order].paid
}

func (o *orders) markPaid(order string, fence uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := o.rows[order].fence; fence < last {
		return fmt.Errorf("order %s: write with fence %d rejected: fence %d has written before", order, fence, last)
	}
	o.rows[order] = row{paid: true, fence: fence}
	o.marks++
	return nil
}

// charges returns the number of recorded payments.
func (o *orders) charges() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.marks
}
