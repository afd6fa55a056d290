package zkstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/zktest"
)

// A memberFault makes members of an ensemble fail. The client that holds the lock is connected to
// the victim only.
type memberFault struct {
	name   string
	victim func(leader int) int
	begin  func(c *zktest.Cluster, victim int) error
	end    func(c *zktest.Cluster, victim int) error
	brief  bool          // it ends when another member leads, so sessions may last
	all    time.Duration // nobody can lock meanwhile, at least for this time
}

func leading(leader int) int   { return leader }
func following(leader int) int { return (leader + 1) % members }

const members = 3

func kill(c *zktest.Cluster, victim int) error {
	c.Members[victim].Kill()
	return nil
}

func restart(c *zktest.Cluster, victim int) error { return c.Members[victim].Restart() }
func pause(c *zktest.Cluster, victim int) error   { return c.Members[victim].Pause() }
func resume(c *zktest.Cluster, victim int) error  { return c.Members[victim].Resume() }

func cutOff(c *zktest.Cluster, victim int) error {
	c.Partition(victim)
	return nil
}

// cutFromLeader leaves a follower connected to the other follower.
func cutFromLeader(c *zktest.Cluster, victim int) error {
	c.Cut(victim, (victim+members-1)%members)
	return nil
}

func heal(c *zktest.Cluster, _ int) error {
	c.Heal()
	return nil
}

// others calls a function for all members except the victim, at the same time.
func others(c *zktest.Cluster, victim int, do func(*zktest.Server) error) error {
	errs := make(chan error)
	for i := 1; i < members; i++ {
		go func() { errs <- do(c.Members[(victim+i)%members]) }()
	}
	var all error
	for i := 1; i < members; i++ {
		all = errors.Join(all, <-errs)
	}
	return all
}

// killMost kills the majority, and leaves the victim.
func killMost(c *zktest.Cluster, victim int) error {
	return others(c, victim, func(s *zktest.Server) error { s.Kill(); return nil })
}

func restartMost(c *zktest.Cluster, victim int) error {
	return others(c, victim, (*zktest.Server).Restart)
}

// pauseMost stops the majority, as a disk that does not answer would.
func pauseMost(c *zktest.Cluster, victim int) error {
	return others(c, victim, func(s *zktest.Server) error { return s.Pause() })
}

func resumeMost(c *zktest.Cluster, victim int) error {
	return others(c, victim, func(s *zktest.Server) error { return s.Resume() })
}

// Members of ensembles fail. No other tests run at the same time: on a busy machine the members
// elect leaders again and again, and each election begins all sessions anew.
func TestMembers(t *testing.T) {
	for what, faults := range map[string][]memberFault{
		"killed": {
			{name: "leader killed", victim: leading, begin: kill, end: restart},
			{name: "follower killed", victim: following, begin: kill, end: restart},
			{name: "majority killed", victim: following, begin: killMost, end: restartMost, all: time.Millisecond},
		},
		"stopped": { // an old leader can resume before or after the sessions that it knows end
			{name: "leader stopped", victim: leading, begin: pause, end: resume},
			{name: "leader stopped briefly", victim: leading, begin: pause, end: resume, brief: true},
			{name: "follower stopped", victim: following, begin: pause, end: resume},
			{name: "majority stopped", victim: following, begin: pauseMost, end: resumeMost, all: 5 * time.Second},
			{name: "leader and a follower stopped", victim: leading, begin: pauseMost, end: resumeMost, all: 5 * time.Second},
		},
		"cut off": { // from members, but not from clients
			{name: "leader cut off", victim: leading, begin: cutOff, end: heal},
			{name: "leader cut off briefly", victim: leading, begin: cutOff, end: heal, brief: true},
			{name: "follower cut off", victim: following, begin: cutOff, end: heal},
			{name: "follower cut off from the leader", victim: following, begin: cutFromLeader, end: heal},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			runFaults(t, faults)
		})
	}
	t.Run("clients", func(t *testing.T) {
		t.Parallel()
		runClientFaults(t)
	})
}

// longestIdle is how long the lock can stay idle after a fault: twice the session of a dead waiter,
// because an election begins it anew. The next holder can be a client that sends some of its
// requests to the failing member, without a reply, so it needs several attempts: many on a busy
// machine.
const longestIdle = 2*longSession + 30*time.Second

// runFaults runs faults one after the other, with clients on each member.
func runFaults(t *testing.T, faults []memberFault) {
	c := zktest.NewCluster(t, members)
	d := newDrill(t, connect(t, c.Members...))
	var pinned []*dibs.Client // by their member
	for _, m := range c.Members {
		pinned = append(pinned, d.open(endpoints(m)))
	}
	for _, locks := range append(pinned, d.open(c.Endpoints())) {
		d.enter(locks)
		d.enter(locks)
	}
	rounds := 1
	if isLong() {
		rounds = 20
	}
	for range rounds {
		for _, fault := range faults {
			d.suffer(c, fault, pinned)
		}
	}
	d.stop()
}

// suffer lets a fault happen while a client on the victim holds the lock.
func (d *drill) suffer(c *zktest.Cluster, fault memberFault, pinned []*dibs.Client) {
	d.t.Helper()
	const work = session + 2*time.Second // longer than its session lasts without the victim
	leader, err := c.NewLeader(-1)
	must(d.t, err)
	victim := fault.victim(leader)
	ended := d.hold(pinned[victim], work)
	begun := d.rec.Now()
	must(d.t, fault.begin(c, victim))
	switch {
	case fault.brief:
		_, err := c.NewLeader(leader)
		must(d.t, err)
	case fault.all > 0:
		d.sleep(fault.all)
		<-ended
	default:
		d.t.Logf("FIGURE %s: the next entry after %v", fault.name, d.wantEntry(begun, longestIdle))
		if isLong() {
			d.sleep(10 * time.Second)
		}
	}
	healed := d.rec.Now()
	must(d.t, fault.end(c, victim))
	<-ended
	d.t.Logf("FIGURE %s: an entry %v after its end", fault.name, d.wantEntry(healed, longestIdle))
}
