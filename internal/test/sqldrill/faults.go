package sqldrill

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// Again injects a fault again and again, with pauses.
func Again(between time.Duration, fault func()) func(stop context.Context) int {
	return func(stop context.Context) (n int) {
		for stop.Err() == nil {
			fault()
			n++
			pause(stop, between)
		}
		return n
	}
}

// After injects a fault once, after a time.
func After(d time.Duration, fault func()) func(stop context.Context) int {
	return func(stop context.Context) int {
		pause(stop, d)
		fault()
		return 1
	}
}

// Network delays, stalls, loses and cuts the connections through a proxy.
func Network(p *redistest.Proxy) func(stop context.Context) int {
	const longest = 800 * time.Millisecond
	return func(stop context.Context) (n int) {
		defer p.Delay(0)
		for ; stop.Err() == nil; n++ {
			p.Delay(rand.N(10 * time.Millisecond))
			switch n % 4 {
			case 0:
				p.Reset()
			case 1:
				p.Freeze()
			case 2:
				p.Drop()
			default:
				p.Refuse(true)
				p.Reset()
			}
			pause(stop, rand.N(longest))
			p.Heal()
			pause(stop, rand.N(longest))
		}
		return n
	}
}

// Deadlocks repeatedly executes a transaction to lock a drill's names in the reverse order. count
// returns how many deadlocks the server found.
func Deadlocks(inReverse func() error, count func() int) func(stop context.Context) int {
	return func(stop context.Context) int {
		before := count()
		for stop.Err() == nil {
			_ = inReverse() // the server may roll back this transaction
		}
		return count() - before
	}
}
