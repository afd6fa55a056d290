package locktable

import (
	"errors"

	"github.com/dibslock/dibs/driver"
)

// Check returns an error if no operation can have produced this state. Stores that keep locks as
// text call it after decoding.
func (l *Lock) Check() error {
	for _, h := range l.Holders {
		if h.Token == "" || h.Weight < 1 || h.Weight > driver.Unlimited || h.Expires < 0 {
			return errHolder
		}
	}
	for i, w := range l.Queue {
		switch {
		case w.Token == "" || w.Weight < 1 || w.Weight > w.Limit || w.Limit > driver.Unlimited:
			return errWaiter
		case w.TTL <= 0 || w.TTL > driver.WaiterTTL || w.Heartbeat < 0 || w.Joined < 0 || w.Joined > w.Heartbeat || w.Missed < 0:
			return errWaiter
		case i > 0 && l.Queue[i-1].Ticket > w.Ticket:
			return errOrder
		}
	}
	return nil
}

var (
	errHolder = errors.New("invalid holder")
	errWaiter = errors.New("invalid waiter")
	errOrder  = errors.New("queue is not in order")
)
