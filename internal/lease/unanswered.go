package lease

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// Unanswered is an acquire without an answer. It may still arrive at the store and acquire the name
// again after its lease was released.
type Unanswered struct {
	Request driver.AcquireRequest
	Until   time.Time // the request can have no effect after this time
	Next    *Unanswered
}

// merge returns the tries in both lists.
func (u *Unanswered) merge(o *Unanswered) *Unanswered {
	if u == nil {
		return o
	}
	u.Next = u.Next.merge(o)
	return u
}

// A LateResize is a weight change without an answer.
type LateResize struct {
	Until  time.Time // it may arrive at the store until then
	Weight int
}
