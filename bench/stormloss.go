package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

const (
	lossRestarts = 24
	lossGrace    = 5 * time.Second // after the last restart
)

// lossesTold measures how soon clients detect that a server lost its data.
func lossesTold(_ *fixture, c config) ([]*table, error) {
	t := &table{
		name: "storm-loss",
		about: []string{
			fmt.Sprintf("A server is killed, and started again without data, %d times, 1 to 2 s apart. Each lost lease is acquired again at once. Its TTL is 30 s.", lossRestarts),
			"p50 ms, max ms: from when the server accepts connections until the context of a lease ends. untold: leases whose context did not end.",
			"held: leases that were held when the server was killed, of all.",
		},
		load:    "leases",
		columns: []column{{"losses", 0, median}, {"held", 2, median}, {"p50 ms", 1, median}, {"p90 ms", 1, median}, {"max ms", 1, maximum}, {"untold", 0, maximum}},
		bars:    []bar{atMost("p50 ms", 50), atMost("max ms", 150), atMost("untold", 0)},
	}
	for _, s := range []storm{
		{name: "1", clients: 20, leases: 1},
		{name: "100", clients: 4, leases: 100},
	} {
		progress("%s, clients with leases: %s", t.name, s.name)
		b, err := newRedis(1)
		if err != nil {
			return nil, err
		}
		t.server = b.version
		f, err := b.losses(s, max(int(lossRestarts*c.stormTime), 1), max(c.scaled(lossGrace), time.Second))
		b.close()
		if err != nil {
			return nil, err
		}
		t.row(s.name, ours).runs = []figures{f}
	}
	return []*table{t}, nil
}

// A heldTime is a lease's time on the shared clock.
type heldTime struct {
	Since time.Duration
	Until time.Duration // when its context ended; 0 if it did not
}

// losses performs a run.
func (b *fixture) losses(s storm, restarts int, grace time.Duration) (figures, error) {
	s.ttl = 30 * time.Second
	orders := b.holders(ours, b.name(), s)
	for i := range orders {
		orders[i].Job = "loss"
	}
	group, err := b.startWorkers(orders...)
	defer group.stop()
	if err != nil {
		return nil, err
	}
	for _, w := range group.workers {
		var held int
		if err := w.receive(&held); err != nil {
			return nil, err
		}
	}
	var downs []outage
	for range restarts {
		time.Sleep(time.Second + rand.N(time.Second))
		o, err := b.nodes[0].lose()
		if err != nil {
			return nil, err
		}
		downs = append(downs, o)
	}
	time.Sleep(grace)
	if err := group.send(startSignal{}); err != nil {
		return nil, err
	}
	var all []heldTime
	for _, w := range group.workers {
		var times []heldTime
		if err := w.receive(&times); err != nil {
			return nil, err
		}
		all = append(all, times...)
	}
	return lossFigures(all, downs, s.clients*s.leases), nil
}

// An outage is a restart's time on the shared clock.
type outage struct {
	killed   time.Duration
	accepted time.Duration // when the new process accepted a connection
}

// lose restarts a server without its data.
func (n *node) lose() (o outage, err error) {
	o.killed = now()
	n.Kill()
	accepted := make(chan time.Duration, 1)
	limit := o.killed + workerTimeout
	go func() {
		for now() < limit {
			if conn, err := net.Dial("tcp", n.Addr()); err == nil {
				accepted <- now()
				conn.Close()
				return
			}
			time.Sleep(200 * time.Microsecond) // between polls: a server reports no such event
		}
	}()
	if err := n.Restart(); err != nil {
		return o, err
	}
	o.accepted = <-accepted
	return o, nil
}

// lossFigures assigns losses to restarts.
func lossFigures(all []heldTime, downs []outage, leases int) figures {
	var told []float64
	untold := 0
	for _, h := range all {
		for _, o := range downs {
			if h.Since > o.killed {
				continue
			}
			switch {
			case h.Until == 0:
				untold++
			case h.Until > o.killed: // otherwise it was lost in the outage before, just after its grant
				told = append(told, millis(h.Until-o.accepted))
			}
			break
		}
	}
	return figures{
		"losses": float64(len(told)), "held": float64(len(told)+untold) / float64(leases*len(downs)),
		"p50 ms": median(told), "p90 ms": percentile(told, 0.9), "max ms": maximum(told), "untold": float64(untold),
	}
}

// lossJob acquires leases, and acquires them again when they are lost. It reports all.
func lossJob(o order, _ peer, t link) error {
	clients, err := openClients(o)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	l := &lossRecord{current: make(map[string]time.Duration)}
	var first, running sync.WaitGroup
	for i, c := range clients {
		for n := range o.Count {
			name := o.heldName(fmt.Sprintf("%d.%d.%d", o.Index, i, n))
			first.Add(1)
			running.Go(func() { l.keep(ctx, c, name, sync.OnceFunc(first.Done)) })
		}
	}
	first.Wait()
	if err := t.out.Encode(o.Count * len(clients)); err != nil {
		return err
	}
	var stop startSignal
	if err := t.in.Decode(&stop); err != nil {
		return err
	}
	times := l.all()
	end()
	running.Wait()
	return t.out.Encode(times)
}

// A lossRecord records when leases were held. It is safe for concurrent use.
type lossRecord struct {
	mu      sync.Mutex
	ended   []heldTime
	current map[string]time.Duration // since when a name is held
}

// keep holds a name until ctx ends.
func (l *lossRecord) keep(ctx context.Context, c *dibs.Client, name string, held func()) {
	for ctx.Err() == nil {
		lease, err := c.Mutex(name).Lock(ctx)
		if err != nil {
			continue // the server does not answer
		}
		since := now()
		l.mu.Lock()
		l.current[name] = since
		l.mu.Unlock()
		held()
		select {
		case <-lease.Context().Done():
			l.mu.Lock()
			delete(l.current, name)
			l.ended = append(l.ended, heldTime{since, now()})
			l.mu.Unlock()
		case <-ctx.Done():
		}
		_ = lease.Unlock() // it is lost, or the run ends
	}
}

// all returns all leases' times until now.
func (l *lossRecord) all() []heldTime {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.ended
	for _, since := range l.current {
		all = append(all, heldTime{Since: since})
	}
	return all
}
