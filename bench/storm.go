package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A storm is a case in the fault tables: clients hold leases while a fault affects their server.
// The clients should not cause a storm in the server: additional work because of the fault, which
// can keep the fault from ending.
type storm struct {
	name    string
	clients int // of dibs, each with its own connections
	leases  int // for each client
	ttl     time.Duration
	waiters bool // each client has a waiter, for one of the next client's names

	limit float64 // after all leases are held, the server gets this fraction of a processor; 0: all
	need  float64 // instead, as much as it needed on average before, times this

	cuts     bool                                // the clients are behind a proxy
	fault    func(*fixture, time.Duration) error // nil: none
	lasts    time.Duration                       // its argument
	restarts bool                                // the fault starts a new server process
}

// none is no fault.
func none(*fixture, time.Duration) error { return nil }

// stop stops all servers for a time. Their connections stay open.
func stop(b *fixture, lasts time.Duration) error {
	for _, n := range b.nodes {
		if err := n.Pause(); err != nil {
			return err
		}
	}
	time.Sleep(lasts)
	for _, n := range b.nodes {
		if err := n.Resume(); err != nil {
			return err
		}
	}
	return nil
}

// dropAll loses all bytes on all connections for a time.
func dropAll(b *fixture, lasts time.Duration) error {
	for _, n := range b.nodes {
		n.proxy.Drop()
	}
	time.Sleep(lasts)
	b.heal()
	return nil
}

// refuseAll resets all connections, and new ones for a time.
func refuseAll(b *fixture, lasts time.Duration) error {
	for _, n := range b.nodes {
		n.proxy.Refuse(true)
		n.proxy.Reset()
	}
	time.Sleep(lasts)
	b.heal()
	return nil
}

func (b *fixture) heal() {
	for _, n := range b.nodes {
		n.proxy.Heal()
	}
}

// scaled returns the storm as the flags want it.
func (s storm) scaled(c config) storm {
	if s.clients > 20 {
		s.clients = max(int(float64(s.clients)*c.stormSize), 4)
	} else {
		s.leases = max(int(float64(s.leases)*c.stormSize), 1)
	}
	s.ttl, s.lasts = c.scaledTTL(s.ttl), c.scaled(s.lasts)
	return s
}

// announced shows a case's name, unless the flags select others: then it returns false.
func (t *table) announced(c config, name string) bool {
	full := t.name + ", " + name
	if !strings.Contains(full, c.stormCase) {
		return false
	}
	progress("%s", full)
	return true
}

// scaledTTL is scaled for a TTL, which must be long enough for a busy machine.
func (c config) scaledTTL(ttl time.Duration) time.Duration {
	return min(ttl, max(c.scaled(ttl), 600*time.Millisecond))
}

func (c config) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * c.stormTime)
}

const (
	aboutQuiet = "quiet: a period without a fault. after: one of the same length that begins with the fault, and ends a TTL after it."
	aboutWork  = "commands: all that the server executed, those of scripts included. cpu: of the server, of one processor. busy s: seconds in which it ran, or waited for a processor, nearly all the time. MB: its memory, and its largest during the period."
	aboutLost  = "lost: leases that the clients report as lost, or that the server does not have; early: those before the fault."
)

// stormColumns are the figures from fixture.storm on Redis.
func stormColumns() []column {
	return []column{
		{"leases", 0, median}, {"early", 0, maximum}, {"lost", 0, maximum},
		{"commands", 0, median}, {"after", 0, median}, {"of quiet", 2, maximum},
		{"cpu %", 1, median}, {"cpu after", 1, maximum}, {"busy s", 0, maximum}, {"busy after", 0, maximum},
		{"conns", 0, median}, {"most", 0, maximum}, {"conns after", 0, maximum}, {"of before", 2, maximum},
		{"MB", 1, median}, {"MB after", 1, maximum}, {"MB ratio", 2, maximum},
	}
}

// addStorms measures storms, and adds a row for each.
func (t *table) addStorms(b *fixture, c config, peer string, all []storm) {
	if t.server == "" {
		t.server = b.version
	}
	for _, s := range all {
		if !t.announced(c, s.name) {
			continue
		}
		f, notes, err := b.storm(peer, s.scaled(c))
		if err != nil { // the other cases' figures are not lost
			f, notes = figures{}, []string{"failed: " + err.Error()}
		}
		progress("  lost %v of %v, %v before the fault; commands %.0f, after %.0f", f["lost"], f["leases"], f["early"], f["commands"], f["after"])
		t.row(s.name, ours).runs = append(t.row(s.name, ours).runs, f)
		for _, note := range notes {
			t.notes = append(t.notes, s.name+": "+note)
		}
	}
}

// storm measures a storm.
func (b *fixture) storm(peer string, s storm) (f figures, notes []string, err error) {
	name := b.name()
	group, err := b.startWorkers(b.holders(peer, name, s)...)
	defer group.stop()
	if err != nil {
		return nil, nil, err
	}
	for _, w := range group.workers {
		var held int
		if err := w.receive(&held); err != nil {
			return nil, nil, err
		}
	}
	length := s.lasts + s.ttl
	if s.limit == 0 {
		time.Sleep(s.ttl) // after the first renewals, which are not spread yet
	}
	if s.need > 0 {
		average, err := b.during(length, s, none)
		if err != nil {
			return nil, nil, err
		}
		s.limit = s.need * average.cpu.Seconds() / length.Seconds()
		notes = append(notes, fmt.Sprintf("the server has %.1f %% of a processor", 100*s.limit))
		lost, _, err := group.lost()
		if err != nil {
			return nil, nil, err
		}
		if lost > 0 {
			notes = append(notes, fmt.Sprintf("%d were lost before the limit, so that the need is too small", lost))
		}
	}
	if s.limit > 0 {
		g, err := b.limit(s.limit)
		if err != nil {
			return nil, nil, err
		}
		defer g.close()
		b.unlimit = g.lift
		defer func() { b.unlimit = nil }()
	}
	f, more, err := b.quietAndAfter(group, s, length)
	notes = append(notes, more...)
	if err != nil {
		return nil, nil, err
	}
	present, err := b.present(name)
	if err != nil {
		return nil, nil, err
	}
	f["leases"] = float64(s.clients * s.leases)
	if missing := f["leases"] - float64(present); missing > f["lost"] && !s.waiters {
		f["lost"] = missing
	}
	if s.waiters {
		if err := group.serveAll(f); err != nil {
			return nil, nil, err
		}
	}
	group.stop()
	return f, notes, b.clearAll()
}

// holders returns the orders for the clients' processes.
func (b *fixture) holders(peer, name string, s storm) (orders []order) {
	workers, addrs := min(processes, s.clients), b.addrs()
	if s.cuts { // otherwise a proxy would only need processor time
		addrs = b.proxyAddrs()
	}
	for i := range workers {
		orders = append(orders, order{
			Job: "storm", Peer: peer + b.at, Addrs: addrs, TTL: s.ttl, Name: name, Workers: workers, Index: i,
			Clients: s.clients*(i+1)/workers - s.clients*i/workers, Count: s.leases, Waiters: s.waiters, Patience: stormPatience + workerTimeout,
		})
	}
	return orders
}

// quietAndAfter measures the quiet period, and the fault period.
func (b *fixture) quietAndAfter(group *workerGroup, s storm, length time.Duration) (f figures, notes []string, err error) {
	quiet, err := b.during(length, s, none)
	if err != nil {
		return nil, nil, err
	}
	early, _, err := group.lost()
	if err != nil {
		return nil, nil, err
	}
	fault := s.fault
	if fault == nil {
		fault = none
	}
	after, err := b.during(length, s, fault)
	if err != nil {
		return nil, nil, err
	}
	if b.unlimit != nil {
		if err := b.unlimit(); err != nil {
			return nil, nil, err
		}
	}
	lost, example, err := group.lost()
	if example != "" {
		notes = append(notes, fmt.Sprintf("%d lost, the first: %s", lost, example))
	}
	const mb = 1 << 20
	return figures{
		"early": float64(early), "lost": float64(lost),
		"commands": quiet.all(), "after": after.all(), "of quiet": after.all() / quiet.all(),
		"cpu %": 100 * quiet.cpu.Seconds() / length.Seconds(), "cpu after": 100 * after.cpu.Seconds() / length.Seconds(),
		"busy s": float64(quiet.busy), "busy after": float64(after.busy),
		"conns": quiet.connections, "most": after.most.connections, "conns after": after.connections, "of before": after.connections / quiet.connections,
		"MB": quiet.memory / mb, "MB after": after.most.memory / mb, "MB ratio": after.most.memory / quiet.memory,
	}, notes, err
}

// A period is the servers' work during some time.
type period struct {
	usage
	most usage // connections and memory: the largest samples
	busy int   // see busySeconds
}

// all returns the number of commands, without this program's own.
func (p period) all() (total float64) {
	for name, calls := range p.calls {
		if name != "info" {
			total += calls
		}
	}
	return total
}

// during calls a function, and returns the servers' work in a period that begins before the call.
func (b *fixture) during(length time.Duration, s storm, happen func(*fixture, time.Duration) error) (period, error) {
	before, err := b.patientUsage()
	if err != nil {
		return period{}, err
	}
	end := now() + length
	var most usage
	var seconds int
	var sampling sync.WaitGroup
	done := make(chan struct{})
	sampling.Go(func() { most = b.sample(done) })
	sampling.Go(func() { seconds = b.busySeconds(done) })
	err = happen(b, s.lasts)
	sleepUntil(end)
	close(done)
	sampling.Wait()
	if err != nil {
		return period{}, err
	}
	after, err := b.patientUsage()
	if err != nil {
		return period{}, err
	}
	most.connections, most.memory = max(most.connections, after.connections), max(most.memory, after.memory)
	if s.restarts && after.executed() < before.executed() {
		before = usage{} // the new process began at zero
	}
	return period{after.since(before), most, seconds}, nil
}

// patientUsage is usage for servers that may be busy.
func (b *fixture) patientUsage() (u usage, err error) {
	for range 5 {
		if u, err = b.usage(); err == nil {
			return u, nil
		}
	}
	return u, err
}

// sample returns the most connections and the largest memory until done.
func (b *fixture) sample(done chan struct{}) (most usage) {
	if b.at != "" { // not Redis
		return most
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if u, err := b.usage(); err == nil { // it fails while the server does not answer
			most.connections, most.memory = max(most.connections, u.connections), max(most.memory, u.memory)
		}
		select {
		case <-tick.C:
		case <-done:
			return most
		}
	}
}

// busySeconds returns the number of seconds until done in which the first server, a Redis server,
// almost always ran or waited for a processor.
func (b *fixture) busySeconds(done chan struct{}) (seconds int) {
	s, ok := b.nodes[0].server.(redisServer)
	if !ok {
		return 0
	}
	const nearly = 0.9
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for since, before := now(), demandOf(s.Pid()); ; {
		select {
		case <-tick.C:
		case <-done:
			return seconds
		}
		at, demand := now(), demandOf(s.Pid())
		if float64(demand-before) > nearly*float64(at-since) {
			seconds++
		}
		since, before = at, demand
	}
}

// present returns the number of names in the servers. With several servers, each name must be in a
// majority.
func (b *fixture) present(name string) (int, error) {
	total := 0
	for _, n := range b.nodes {
		held, err := n.held(order{Name: name}.heldName(""))
		if err != nil {
			return 0, err
		}
		total += held
	}
	return total / (len(b.nodes)/2 + 1), nil
}

func (b *fixture) clearAll() (err error) {
	for _, n := range b.nodes {
		err = errors.Join(err, n.clear())
	}
	return err
}
