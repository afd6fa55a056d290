package view

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Waiter is an entry in a name's wait queue.
type Waiter struct {
	Token    string `json:"token"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Label    string `json:"label,omitempty"`
	Kind     string `json:"kind,omitempty"`
	Weight   int    `json:"weight,omitempty"` // for a shared request; 0: exclusive, or unknown
	Limit    int    `json:"limit,omitempty"`  // 0: unlimited or not known
	Position int    `json:"position"`         // 1: the first waiter
	Waited   int64  `json:"waited_ms"`
}

func waiterOf(w driver.Waiter, position int) Waiter {
	o := OwnerOf(w.Token)
	one := Waiter{
		Token: w.Token, Host: o.Host, PID: o.PID, Label: o.Label,
		Kind: waiterKind(w), Limit: limitOf(w.Limit), Position: position, Waited: w.Waited.Milliseconds(),
	}
	if w.Weight != w.Limit {
		one.Weight = w.Weight
	}
	return one
}

// String formats the waiter for people.
func (w Waiter) String() string {
	return Owner{Host: w.Host, PID: w.PID, Label: w.Label, Short: w.Token}.String()
}

// Shortened returns the waiter with its token's public part.
func (w Waiter) Shortened() Waiter {
	w.Token = OwnerOf(w.Token).Short
	return w
}

func (w Waiter) waited() time.Duration { return time.Duration(w.Waited) * time.Millisecond }
