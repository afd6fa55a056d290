package localstore

import (
	"encoding/json"
	"errors"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// An entry is stored as JSON: a name has few holders and waiters, and the file can be
// read with sqlite3.

func encode(e *locktable.Lock) ([]byte, error) { return json.Marshal(e) }

// decode reads an entry. It rejects entries that encode cannot have written.
func decode(text []byte) (*locktable.Lock, error) {
	e := new(locktable.Lock)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, err
	}
	for _, h := range e.Holders {
		if h.Token == "" || h.Weight < 1 || h.Weight > driver.Unlimited || h.Expires < 0 {
			return nil, errHolder
		}
	}
	for i, p := range e.Queue {
		switch {
		case p.Token == "" || p.Weight < 1 || p.Weight > p.Limit || p.Limit > driver.Unlimited:
			return nil, errWaiter
		case p.TTL <= 0 || p.TTL > driver.WaiterTTL || p.Heartbeat < 0 || p.Joined < 0 || p.Joined > p.Heartbeat || p.Missed < 0:
			return nil, errWaiter
		case i > 0 && e.Queue[i-1].Ticket > p.Ticket:
			return nil, errOrder
		}
	}
	if len(e.Holders)+len(e.Queue) == 0 {
		return nil, errEmpty
	}
	return e, nil
}

var (
	errHolder = errors.New("invalid holder")
	errWaiter = errors.New("invalid waiter")
	errOrder  = errors.New("queue is not in order")
	errEmpty  = errors.New("entry without holder and waiter")
)
