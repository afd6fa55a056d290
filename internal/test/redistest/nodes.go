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

// Cluster is a cluster with several nodes. Roles change, so query the current master. Methods can
// be called while nodes fail, but only by one goroutine at a time.
type Cluster struct {
	nodes []*Server
	ids   map[*Server]string
	// A shard contains the nodes serving the same slots; the first node is the initial master.
	// Nodes never change shards.
	shards [][]*Server
}

// StartCluster starts a cluster and stops it with the test. When it returns, the cluster serves all
// slots, evenly divided. All nodes get the same args; see [StartServer], and [Start] for the case
// without an installed server. A password in --requirepass is also used for replication.
//
// A master counts as dead when a majority of masters received no reply from it for a second. So a
// failover needs three masters. A test that pauses nodes for longer, or a slow machine, needs a
// longer --cluster-node-timeout. By default the whole cluster stops serving while a slot has no
// running master; --cluster-require-full-coverage no changes this. Replicas stay in their shard,
// even if another shard lost all its replicas.
func StartCluster(t testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{ids: make(map[*Server]string), shards: make([][]*Server, masters)}
	for range masters * (1 + replicasPerMaster) {
		c.add(&Server{dir: t.TempDir(), args: clusterArgs(args), cluster: true})
	}
	startAll(t, c.nodes...)
	if err := c.form(); err != nil {
		t.Fatal(err)
	}
	return c
}

// add adds a node to the next shard; all masters come first.
func (c *Cluster) add(s *Server) {
	shard := len(c.nodes) % len(c.shards)
	c.nodes = append(c.nodes, s)
	c.shards[shard] = append(c.shards[shard], s)
}

// clusterArgs returns the arguments for a node. A replica is a candidate even after a long time
// without contact to its master.
func clusterArgs(args []string) []string {
	return append([]string{
		"--cluster-node-timeout", "1000",
		"--cluster-replica-validity-factor", "0",
		"--cluster-allow-replica-migration", "no",
		"--cluster-announce-ip", "127.0.0.1",
	}, replicationArgs(args)...)
}

// form makes a cluster from nodes that are still unconnected.
func (c *Cluster) form() error {
	for _, step := range []func() error{c.assignSlots, c.meetAll, c.awaitMet, c.replicateAll, c.WaitSettled} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// assignSlots assigns slots to the masters, and a config epoch to each node.
func (c *Cluster) assignSlots() error {
	for i, s := range c.nodes {
		if err := c.identify(s, i+1); err != nil {
			return err
		}
	}
	for i, shard := range c.shards {
		first, last := i*slots/len(c.shards), (i+1)*slots/len(c.shards)-1
		if _, err := shard[0].Cmd(addSlots(first, last)...); err != nil {
			return err
		}
	}
	return nil
}

// identify reads a node's ID, and assigns a config epoch to it. A node accepts an epoch only while
// it is alone; without an epoch, the nodes would have to resolve conflicts.
func (c *Cluster) identify(s *Server, epoch int) error {
	id, err := s.Cmd("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	c.ids[s] = fmt.Sprint(id)
	_, err = s.Cmd("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(epoch))
	return err
}

// meetAll lets every two nodes meet. Gossip would need fewer commands, but more time.
func (c *Cluster) meetAll() error {
	for i, s := range c.nodes {
		if err := c.meet(s, c.nodes[:i]); err != nil {
			return err
		}
	}
	return nil
}

// meet lets a node meet others.
func (c *Cluster) meet(s *Server, others []*Server) error {
	for _, other := range others {
		if _, err := s.Cmd("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.bus)); err != nil {
			return err
		}
	}
	return nil
}

// awaitMet waits until all nodes know each other.
func (c *Cluster) awaitMet() error {
	return waitUntil("all nodes know each other", func(ctx context.Context) error {
		for _, s := range c.nodes {
			if err := c.knowsAll(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// knowsAll checks the IDs: a node still in the handshake has a temporary ID.
func (c *Cluster) knowsAll(ctx context.Context, s *Server) error {
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	for _, id := range c.ids {
		if !slices.ContainsFunc(v, func(m member) bool { return m.id == id }) {
			return fmt.Errorf("%s does not know all nodes", s.Addr())
		}
	}
	return nil
}

func (c *Cluster) replicateAll() error {
	for _, shard := range c.shards {
		for _, replica := range shard[1:] {
			if _, err := replica.Cmd("CLUSTER", "REPLICATE", c.ids[shard[0]]); err != nil {
				return err
			}
		}
	}
	return nil
}

// AddMaster adds a master without slots, as when a cluster grows. It gets the other nodes' args,
// and is stopped with the test.
func (c *Cluster) AddMaster(t testing.TB) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir(), args: c.nodes[0].args, cluster: true}
	startAll(t, s)
	if err := c.join(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// join makes a running node a cluster member, in its own shard.
func (c *Cluster) join(s *Server) error {
	if err := c.identify(s, len(c.nodes)+1); err != nil {
		return err
	}
	if err := c.meet(s, c.nodes); err != nil {
		return err
	}
	c.nodes, c.shards = append(c.nodes, s), append(c.shards, []*Server{s})
	if err := c.awaitMet(); err != nil {
		return err
	}
	return c.WaitSettled()
}

// Nodes returns all nodes. The first masters come first, in slot order.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Addrs returns all nodes' addresses.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// MasterOf returns the node that serves a slot now. It queries each running node about itself. If
// two nodes report that they own the slot, the newer epoch wins, as between the nodes themselves.
// This happens after a failover while the old master was paused. MasterOf returns an error if no
// node owns the slot.
func (c *Cluster) MasterOf(slot int) (*Server, error) {
	return c.currentMaster(context.Background(), slot)
}

func (c *Cluster) currentMaster(ctx context.Context, slot int) (*Server, error) {
	var master *Server
	epoch := int64(-1)
	errs := []error{fmt.Errorf("redistest: no running node serves slot %d", slot)}
	for _, s := range runningServers(c.nodes) {
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

// KillMaster kills a slot's master, as a crash would, and returns it. A replica is promoted soon:
// see WaitFailover.
func (c *Cluster) KillMaster(slot int) (*Server, error) {
	master, err := c.MasterOf(slot)
	if err != nil {
		return nil, err
	}
	master.Kill()
	return master, nil
}

// WaitFailover waits until a replica took over a dead or paused master's slots, and all other
// running nodes know about it and serve again. It returns the new master and the waiting time. It
// fails after 30 s, for example for a master without slots.
func (c *Cluster) WaitFailover(dead *Server) (*Server, time.Duration, error) {
	if _, err := c.shardOf(dead); err != nil {
		return nil, 0, err
	}
	begin := time.Now()
	var successor *Server
	err := waitUntil("a replica has taken over", func(ctx context.Context) (err error) {
		if successor, err = c.successor(ctx, dead); err != nil {
			return err
		}
		return c.checkSettledWithout(ctx, dead)
	})
	return successor, time.Since(begin), err
}

// successor returns the current master in a dead node's shard.
func (c *Cluster) successor(ctx context.Context, dead *Server) (*Server, error) {
	peers, err := c.shardOf(dead)
	if err != nil {
		return nil, err
	}
	for _, s := range without(dead, runningServers(peers)) {
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
	return nil, errUnknownServer
}

// Failover promotes a replica while its master runs, as for maintenance, and waits until
// all nodes know. No write is lost.
func (c *Cluster) Failover(replica *Server) error {
	if _, err := c.shardOf(replica); err != nil {
		return err
	}
	if _, err := replica.Cmd("CLUSTER", "FAILOVER"); err != nil {
		return err
	}
	return waitUntil("the replica is a master", func(ctx context.Context) error {
		v, err := replica.view(ctx)
		if err != nil {
			return err
		}
		if !v.myself().isMaster() {
			return fmt.Errorf("%s is a replica", replica.Addr())
		}
		return c.checkSettled(ctx)
	})
}

// Rejoin restarts a killed node and waits until the cluster is settled. The node keeps
// its identity. If a replica was promoted, the node becomes its replica. Otherwise it is
// a master again, and empty unless it has an append-only file.
func (c *Cluster) Rejoin(s *Server) error {
	if _, err := c.shardOf(s); err != nil {
		return err
	}
	if err := s.Restart(); err != nil {
		return err
	}
	return c.WaitSettled()
}

// WaitSettled waits until all running nodes (including paused ones) agree about roles and failures,
// all slots are served, and the replicas replicate. It fails after 30 s and reports the missing
// condition.
func (c *Cluster) WaitSettled() error { return waitUntil("the cluster is settled", c.checkSettled) }

func (c *Cluster) checkSettled(ctx context.Context) error { return c.checkSettledWithout(ctx, nil) }

// checkSettledWithout treats a node as dead, whether it is or not.
func (c *Cluster) checkSettledWithout(ctx context.Context, dead *Server) error {
	nodes := without(dead, runningServers(c.nodes))
	replicas := make(map[*Server][]*Server)
	summary := ""
	for _, s := range nodes {
		v, err := s.view(ctx)
		if err != nil {
			return err
		}
		if summary == "" {
			summary = v.summary()
		}
		if g := v.summary(); g != summary {
			return fmt.Errorf("%s has another view of the cluster than %s:\n%s\n%s", s.Addr(), nodes[0].Addr(), g, summary)
		}
		if err := c.checkView(ctx, s, v, nodes); err != nil {
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

// checkView checks that a node sees no problem with the running nodes, considers the others dead,
// and serves.
func (c *Cluster) checkView(ctx context.Context, s *Server, v view, living []*Server) error {
	if len(v) != len(c.nodes) {
		return fmt.Errorf("%s knows %d nodes, want %d", s.Addr(), len(v), len(c.nodes))
	}
	for _, other := range c.nodes {
		m, err := v.at(other.Addr())
		if err != nil {
			return err
		}
		lives := slices.Contains(living, other)
		if lives == m.isFailing() || lives && m.link != "connected" {
			return fmt.Errorf("%s sees %s as %q and %s", s.Addr(), other.Addr(), m.flags, m.link)
		}
	}
	info, err := s.queryText(ctx, "CLUSTER", "INFO")
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
	return nil, fmt.Errorf("no node has ID %s", id)
}
