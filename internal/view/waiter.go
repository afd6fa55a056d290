package view

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Waiter is one entry of the wait queue of a name.
type Waiter struct {
	Token    string `json:"token"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Label    string `json:"label,omitempty"`
	Position int    `json:"position"` // 1: the first waiter
	Waited   int64  `json:"waited_ms"`
}

func waiterOf(w driver.Waiter, position int) Waiter {
	o := OwnerOf(w.Token)
	return Waiter{
		Token: w.Token, Host: o.Host, PID: o.PID, Label: o.Label,
		Position: position, Waited: w.Waited.Milliseconds(),
	}
}

// String formats the waiter for people.
func (w Waiter) String() string {
	return Owner{Host: w.Host, PID: w.PID, Label: w.Label, Short: w.Token}.String()
}

// Shortened returns the waiter with the public part of its token.
func (w Waiter) Shortened() Waiter {
	w.Token = OwnerOf(w.Token).Short
	return w
}

func (w Waiter) waited() time.Duration { return time.Duration(w.Waited) * time.Millisecond }
