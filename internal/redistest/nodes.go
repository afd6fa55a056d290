package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Cluster is a cluster of several nodes. Who serves what changes, so ask. Its
// methods may be used while nodes die, but by one caller at a time.
type Cluster struct {
	nodes []*Server
	ids   map[*Server]string
	// shards are the nodes that share their slots: each began with its master.
	// Nodes do not change shards by themselves.
	shards [][]*Server
}

// StartCluster starts a cluster that serves all slots, evenly divided, when it
// returns, and stops it with the test. All nodes get the same args; see
// [StartServer], and [Start] for what happens where no server is installed. A
// password given with --requirepass is that of replication too. It takes Redis 7.
//
// A master is dead after a second of silence, in the opinion of most masters, so
// it takes three of them for a failover to happen. A test that pauses nodes for
// longer, or a machine that does, needs a longer --cluster-node-timeout. As
// usual the whole cluster serves nothing while a slot has no master that lives;
// --cluster-require-full-coverage no changes that. Replicas stay with the
// masters of their shard, also when another shard has none left.
func StartCluster(t testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{ids: make(map[*Server]string), shards: make([][]*Server, masters)}
	for range masters * (1 + replicasPerMaster) {
		c.add(&Server{dir: t.TempDir(), args: clustering(args), cluster: true})
	}
	attendAll(t, c.nodes...)
	if err := c.form(); err != nil {
		t.Fatal(err)
	}
	return c
}

// add puts the next node into the next shard: all masters come first.
func (c *Cluster) add(s *Server) {
	shard := len(c.nodes) % len(c.shards)
	c.nodes = append(c.nodes, s)
	c.shards[shard] = append(c.shards[shard], s)
}

// clustering are the arguments of a node. A replica is a candidate however long
// ago it has heard from its master.
func clustering(args []string) []string {
	return append([]string{
		"--cluster-node-timeout", "1000",
		"--cluster-replica-validity-factor", "0",
		"--cluster-allow-replica-migration", "no",
		"--cluster-announce-ip", "127.0.0.1",
	}, replicating(args)...)
}

// form makes a cluster of nodes that do not know each other.
func (c *Cluster) form() error {
	for _, step := range []func() error{c.allot, c.introduce, c.enlist, c.WaitSettled} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// allot gives each master its slots, and each node an epoch of its own: a node
// takes one only while it is alone, and without it they would have to find out
// who yields.
func (c *Cluster) allot() error {
	for i, s := range c.nodes {
		id, err := s.Cmd("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		c.ids[s] = fmt.Sprint(id)
		if _, err := s.Cmd("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i, shard := range c.shards {
		first, last := i*slots/len(c.shards), (i+1)*slots/len(c.shards)-1
		if _, err := shard[0].Cmd("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
			return err
		}
	}
	return nil
}

// introduce has each node meet each other one: gossip would do it with fewer
// words and more time.
func (c *Cluster) introduce() error {
	for i, s := range c.nodes {
		for _, other := range c.nodes[i+1:] {
			if _, err := s.Cmd("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.bus)); err != nil {
				return err
			}
		}
	}
	return await("all nodes know each other", func(ctx context.Context) error {
		for _, s := range c.nodes {
			if err := c.acquainted(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// acquainted looks for ids: a node that is still being met has a makeshift one.
func (c *Cluster) acquainted(ctx context.Context, s *Server) error {
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	for _, id := range c.ids {
		if !slices.ContainsFunc(v, func(m member) bool { return m.id == id }) {
			return fmt.Errorf("%s does not know all of them", s.Addr())
		}
	}
	return nil
}

func (c *Cluster) enlist() error {
	for _, shard := range c.shards {
		for _, replica := range shard[1:] {
			if _, err := replica.Cmd("CLUSTER", "REPLICATE", c.ids[shard[0]]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Nodes are all nodes. Those that began as masters come first, in the order of
// their slots.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// MasterOf is the node that serves a slot now. It asks each living node about
// itself, and where two claim the slot, as after a failover that one of them has
// slept through, the one with the newer claim is right, as it is for the nodes.
// The error says that none claims it.
func (c *Cluster) MasterOf(slot int) (*Server, error) {
	return c.claimant(context.Background(), slot)
}

func (c *Cluster) claimant(ctx context.Context, slot int) (*Server, error) {
	var master *Server
	epoch := int64(-1)
	errs := []error{fmt.Errorf("redistest: no living node serves slot %d", slot)}
	for _, s := range alive(c.nodes) {
		v, err := s.view(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if me := v.myself(); me.isMaster() && me.serves(slot) && me.epoch > epoch {
			master, epoch = s, me.epoch
		}
	}
	if master == nil {
		return nil, errors.Join(errs...)
	}
	return master, nil
}

// KillMaster kills the master of a slot as a crash would, and returns it. One of
// its replicas takes its place soon: see WaitFailover.
func (c *Cluster) KillMaster(slot int) (*Server, error) {
	master, err := c.MasterOf(slot)
	if err != nil {
		return nil, err
	}
	master.Kill()
	return master, nil
}

// WaitFailover waits until a replica of a master that is dead or paused has taken
// its slots, and all other nodes that run know and serve again. It returns the new master, and how long
// it has waited. It fails after 30 s, as for a master that had no slots.
func (c *Cluster) WaitFailover(dead *Server) (*Server, time.Duration, error) {
	if _, err := c.shardOf(dead); err != nil {
		return nil, 0, err
	}
	begin := time.Now()
	var successor *Server
	err := await("a replica has taken over", func(ctx context.Context) (err error) {
		if successor, err = c.successor(ctx, dead); err != nil {
			return err
		}
		return c.settledWithout(ctx, dead)
	})
	return successor, time.Since(begin), err
}

// successor is the master of a dead node's shard.
func (c *Cluster) successor(ctx context.Context, dead *Server) (*Server, error) {
	peers, err := c.shardOf(dead)
	if err != nil {
		return nil, err
	}
	for _, s := range without(dead, alive(peers)) {
		v, err := s.view(ctx)
		if err != nil {
			return nil, err
		}
		if me := v.myself(); me.isMaster() && len(me.slots) > 0 {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no replica of %s is a master with slots", dead.Addr())
}

func (c *Cluster) shardOf(s *Server) ([]*Server, error) {
	for _, shard := range c.shards {
		if slices.Contains(shard, s) {
			return shard, nil
		}
	}
	return nil, errStranger
}

// Failover makes a replica the master of its shard while the old master lives, as
// before its maintenance, and waits until all nodes know. No write is lost.
func (c *Cluster) Failover(replica *Server) error {
	if _, err := c.shardOf(replica); err != nil {
		return err
	}
	if _, err := replica.Cmd("CLUSTER", "FAILOVER"); err != nil {
		return err
	}
	return await("the replica is a master", func(ctx context.Context) error {
		v, err := replica.view(ctx)
		if err != nil {
			return err
		}
		if !v.myself().isMaster() {
			return fmt.Errorf("%s is a replica", replica.Addr())
		}
		return c.settled(ctx)
	})
}

// Rejoin restarts a node that was killed, and waits until the cluster is settled.
// The node remembers who it was. Where a replica has taken its place it becomes a
// replica of that one; otherwise it is a master again, and an empty one unless it
// has an append-only file.
func (c *Cluster) Rejoin(s *Server) error {
	if _, err := c.shardOf(s); err != nil {
		return err
	}
	if err := s.Restart(); err != nil {
		return err
	}
	return c.WaitSettled()
}

// WaitSettled waits until the nodes that run (a paused one does) form a whole: they agree about who
// serves what and who is dead, all slots are served, and the replicas replicate.
// It fails after 30 s, and says what is missing.
func (c *Cluster) WaitSettled() error { return await("the cluster is settled", c.settled) }

func (c *Cluster) settled(ctx context.Context) error { return c.settledWithout(ctx, nil) }

// settledWithout takes one node for dead, whether it is or not.
func (c *Cluster) settledWithout(ctx context.Context, dead *Server) error {
	nodes := without(dead, alive(c.nodes))
	replicas := make(map[*Server][]*Server)
	gist := ""
	for _, s := range nodes {
		v, err := s.view(ctx)
		if err != nil {
			return err
		}
		if gist == "" {
			gist = v.gist()
		}
		if g := v.gist(); g != gist {
			return fmt.Errorf("%s sees another cluster than %s:\n%s\n%s", s.Addr(), nodes[0].Addr(), g, gist)
		}
		if err := c.content(ctx, s, v, nodes); err != nil {
			return err
		}
		if me := v.myself(); !me.isMaster() {
			master, err := c.byID(me.master)
			if err != nil {
				return err
			}
			replicas[master] = append(replicas[master], s)
		}
	}
	for master, list := range replicas {
		if err := online(ctx, master, list); err != nil {
			return err
		}
	}
	return nil
}

// content wants a node to see nothing wrong with the nodes that live, to know that
// the others are dead, and to serve.
func (c *Cluster) content(ctx context.Context, s *Server, v view, living []*Server) error {
	if len(v) != len(c.nodes) {
		return fmt.Errorf("%s knows %d nodes, want %d", s.Addr(), len(v), len(c.nodes))
	}
	for _, other := range c.nodes {
		m, err := v.at(other.Addr())
		if err != nil {
			return err
		}
		lives := slices.Contains(living, other)
		if lives == m.fails() || lives && m.link != "connected" {
			return fmt.Errorf("%s sees %s as %q and %s", s.Addr(), other.Addr(), m.flags, m.link)
		}
	}
	info, err := s.askText(ctx, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	state, served := field(info, "cluster_state"), field(info, "cluster_slots_ok")
	if state != "ok" || served != strconv.Itoa(slots) {
		return fmt.Errorf("%s: cluster_state:%s, cluster_slots_ok:%s", s.Addr(), state, served)
	}
	return nil
}

func (c *Cluster) byID(id string) (*Server, error) {
	for s, its := range c.ids {
		if its == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no node here has the id %s", id)
}
