package drill

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// DelayedLinks delays the links of four clients competing for a lock, in turn, by 0.3 to 4 s in
// each direction. No two leases conflict, and no fence decreases.
func (o Opener) DelayedLinks(t *testing.T) {
	const clients = 4
	server := redistest.Start(t)
	var stores []driver.Store
	var links [][]*redistest.Proxy
	for range clients {
		proxy := redistest.NewProxy(t, server.Addr())
		stores, links = append(stores, o.Single(t, proxy.Addr())), append(links, []*redistest.Proxy{proxy})
	}
	delayInTurn(t, stores, links)
}

// delayInTurn runs a workload while each client's links are delayed in turn.
func delayInTurn(t *testing.T, stores []driver.Store, links [][]*redistest.Proxy, options ...dibs.Option) {
	const turn, shortest, longest = 3 * time.Second, 300 * time.Millisecond, 4 * time.Second
	turns := 6
	if redistest.Long() {
		turns = 14
	}
	w := history.Workload{
		Workers: 1, Names: []string{"n"}, Options: append(options, dibs.Timeout(longTimeout)),
		Hold: func(*rand.Rand) time.Duration { return 5 * time.Millisecond },
	}.Start(stores...)
	Eventually(t, "all clients take turns", func() bool { return w.Acquired() > 100 })
	chance := rand.New(rand.NewPCG(3, 4))
	begin := w.Now()
	for i := range turns {
		delay := shortest + time.Duration(chance.Int64N(int64(longest-shortest)))
		for _, proxy := range links[i%len(links)] {
			proxy.Delay(delay)
		}
		before := w.Acquired()
		time.Sleep(turn) // the fault lasts this long
		t.Logf("delay %v of client %d: %d entries", delay, i%len(links), w.Acquired()-before)
		for _, proxy := range links[i%len(links)] {
			proxy.Delay(0)
		}
	}
	over := w.Now()
	v := evaluate(w.Stop(), over)
	t.Logf("FIGURE %d entries in %v, %d leases lost, %d errors", len(v.entries), over.At-begin.At, v.lost, len(v.errors))
	v.wantNoConflicts(t)
	v.wantFences(t)
}
