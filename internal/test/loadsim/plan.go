// Package loadsim measures how many clients affect a single server if it is too slow for them, even
// for a while. The clients are real. The store is a simulated server: a processor executes requests
// in sequence, with a Redis server's durations, even if the caller no longer waits. Time is virtual
// (testing/synctest).
//
// A seed decides the latencies and when each client begins. At the same instant, the Go scheduler
// decides the order, so two runs with the same seed can differ a little.
package loadsim

import (
	"slices"
	"time"

	"github.com/dibslock/dibs"
)

// A Plan describes a run.
type Plan struct {
	Seed    uint64
	Leases  []int         // how many each client holds
	Waiters int           // each client's calls that wait for another client's lease
	TTL     time.Duration // default 30 s
	Timeout time.Duration // for an operation; default 1 s
	Options []dibs.Option // further defaults for the clients

	// Acquire is the time in which a client acquires its leases, evenly. Zero: as fast as it can,
	// in sequence.
	Acquire  time.Duration
	Duration time.Duration // default 1 minute
	Step     time.Duration // between report points; default 100 ms
	// Again makes a client acquire a name again after its loss. Otherwise a lost lease leaves its
	// share of the server to the others.
	Again bool
	// KeepLost omits the Unlock after a loss, which also sends requests.
	KeepLost bool

	Costs     Costs         // default: DefaultCosts
	Latency   time.Duration // request and reply, without waiting; default 200 µs
	Bandwidth int           // each client's link, in bytes/s; zero: no limit
	Events    []Event
}

// Equal returns the leases for n clients with m leases each.
func Equal(n, m int) []int { return slices.Repeat([]int{m}, n) }

func (p Plan) withDefaults() Plan {
	if p.TTL == 0 {
		p.TTL = 30 * time.Second
	}
	if p.Timeout == 0 {
		p.Timeout = time.Second
	}
	if p.Duration == 0 {
		p.Duration = time.Minute
	}
	if p.Step == 0 {
		p.Step = 100 * time.Millisecond
	}
	if p.Latency == 0 {
		p.Latency = 200 * time.Microsecond
	}
	if p.Costs == (Costs{}) {
		p.Costs = DefaultCosts()
	}
	return p
}

// leases returns how many leases there are.
func (p Plan) leases() (n int) {
	for _, m := range p.Leases {
		n += m
	}
	return n
}

// Costs are how long the server's processor needs.
type Costs struct {
	Call    time.Duration // for each request
	Renewed time.Duration // for each lease in an extension
	Connect time.Duration // for a new connection, or a subscription
	Probe   time.Duration // for a subscription check
}

// DefaultCosts are the costs of Redis 7.0 on a server core.
func DefaultCosts() Costs {
	return Costs{
		Call: 15 * time.Microsecond, Renewed: 2700 * time.Nanosecond,
		Connect: 50 * time.Microsecond, Probe: 5 * time.Microsecond,
	}
}

// Model returns the costs for a model with a lease for every n leases. Costs per client, not per
// lease, stay the same.
func (c Costs) Model(n int) Costs {
	times := func(d time.Duration) time.Duration { return time.Duration(n * int(d)) }
	return Costs{Call: times(c.Call), Renewed: times(c.Renewed), Connect: c.Connect, Probe: c.Probe}
}

// renewal is the cost per renewed lease in a full request.
func (c Costs) renewal() time.Duration { return c.Renewed + c.Call/maxExtend }

// An Event affects the server or links.
type Event struct {
	At   time.Duration // since the run began
	For  time.Duration
	kind eventKind
	// for a throttle: the server's processor share from then on
	share float64
	// for a restart
	losesData bool
	// for a cut: the clients; nil: all
	clients []int
	delay   time.Duration // for each request during this time
}

type eventKind int

const (
	stop eventKind = iota
	restart
	cut
	throttle
	slowdown
)

// Stop stops the server's process and lets it continue later. Requests wait meanwhile.
func Stop(at, d time.Duration) Event { return Event{kind: stop, At: at, For: d} }

// Restart ends all connections. The server refuses new ones while it is down.
func Restart(at, down time.Duration) Event { return Event{kind: restart, At: at, For: down} }

// LoseData is a Restart with loss of all data.
func LoseData(at, down time.Duration) Event {
	return Event{kind: restart, At: at, For: down, losesData: true}
}

// Cut interrupts the links of some clients, or of all. Messages arrive after it, as TCP
// repeats them.
func Cut(at, d time.Duration, clients ...int) Event {
	return Event{kind: cut, At: at, For: d, clients: clients}
}

// Throttle limits the server to a share of the processor from then on.
func Throttle(at time.Duration, share float64) Event {
	return Event{kind: throttle, At: at, share: share}
}

// Delay delays each request on its way, as by a busy client process, or a long way.
func Delay(at, d, delay time.Duration) Event {
	return Event{kind: slowdown, At: at, For: d, delay: delay}
}

func (e Event) end() time.Duration { return e.At + e.For }
func (e Event) covers(at time.Duration) bool {
	return e.At <= at && at < e.end()
}

// cutUntil returns the time when a client's message can pass if it is sent at a given time.
func cutUntil(events []Event, client int, at time.Duration) time.Duration {
	for _, e := range events {
		if e.kind == cut && e.covers(at) && (e.clients == nil || slices.Contains(e.clients, client)) {
			at = max(at, e.end())
		}
	}
	return at
}

// delayAt returns the delay of a request sent at a given time.
func delayAt(events []Event, at time.Duration) (d time.Duration) {
	for _, e := range events {
		if e.kind == slowdown && e.covers(at) {
			d += e.delay
		}
	}
	return d
}
