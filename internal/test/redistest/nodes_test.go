package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/spawn"
)

func startCluster(t *testing.T, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	begin := time.Now()
	c := StartCluster(t, masters, replicas, args...)
	t.Logf("started in %v", time.Since(begin))
	return c
}

func masterOf(t *testing.T, c *Cluster, slot int) *Server {
	t.Helper()
	master, err := c.MasterOf(slot)
	if err != nil {
		t.Fatal(err)
	}
	return master
}

func wantRefusal(t *testing.T, s *Server, refusal string, args ...string) {
	t.Helper()
	if value, err := s.Cmd(args...); err == nil || !strings.HasPrefix(err.Error(), refusal) {
		t.Errorf("%q on %s: got %v, %v, want %s", args, s.Addr(), value, err, refusal)
	}
}

func TestClusterDividesItsSlots(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 0)
	if nodes, addrs := c.Nodes(), c.Addrs(); len(nodes) != 3 || len(addrs) != 3 || addrs[0] != nodes[0].Addr() {
		t.Fatalf("got nodes %v at %v, want 3", nodes, addrs)
	}
	for slot, i := range map[int]int{0: 0, 5460: 0, 5461: 1, 10921: 1, 10922: 2, 16383: 2} {
		if got := masterOf(t, c, slot); got != c.Nodes()[i] {
			t.Errorf("slot %d: got %s, want node %d", slot, got.Addr(), i)
		}
	}
	const key = "k"
	master := masterOf(t, c, Slot(key))
	master.MustCmd(t, "SET", key, "v")
	for _, s := range c.Nodes() {
		if s != master {
			wantRefusal(t, s, fmt.Sprintf("MOVED %d %s", Slot(key), master.Addr()), "GET", key)
		}
	}
}

func TestClusterReplacesAPausedMaster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1, "--requirepass", "sesame")
	killAndRecover(t, c)

	paused := masterOf(t, c, 0)
	if err := paused.Pause(); err != nil {
		t.Fatal(err)
	}
	promoted, took, err := c.WaitFailover(paused)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("failed over in %v", took)
	if err := paused.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitSettled(); err != nil {
		t.Fatal(err)
	}
	if got := masterOf(t, c, 0); got != promoted || got == paused {
		t.Errorf("%s paused, %s was promoted, and %s serves", paused.Addr(), promoted.Addr(), got.Addr())
	}
}

// killAndRecover kills a key's master, and returns when the cluster has settled.
func killAndRecover(t *testing.T, c *Cluster) {
	t.Helper()
	begin := time.Now()
	dead, err := c.KillMaster(Slot("k"))
	if err != nil {
		t.Fatal(err)
	}
	promoted, took, err := c.WaitFailover(dead)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("failed over in %v", took)
	if got := masterOf(t, c, Slot("k")); got != promoted || promoted == dead {
		t.Errorf("%s died, %s was promoted, and %s serves its slot", dead.Addr(), promoted.Addr(), got.Addr())
	}
	promoted.MustCmd(t, "SET", "k", "v")
	if err := c.Rejoin(dead); err != nil {
		t.Fatal(err)
	}
	t.Logf("settled in %v", time.Since(begin))
	wantRefusal(t, dead, "MOVED", "GET", "k")
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	old := masterOf(t, c, 0)
	begin := time.Now()
	if err := c.Failover(c.shards[0][1]); err != nil {
		t.Fatal(err)
	}
	t.Logf("settled in %v", time.Since(begin))
	if got := masterOf(t, c, 0); got == old || !old.running() {
		t.Errorf("%s serves the slots of %s, which runs: %v", got.Addr(), old.Addr(), old.running())
	}
	if err := c.Failover(c.Nodes()[1]); err == nil {
		t.Error("a master has been promoted")
	}
}

func TestMigrationStepByStep(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 0, "--requirepass", "sesame")
	slot := Slot("{k}")
	from := masterOf(t, c, slot)
	to := c.Nodes()[0]
	if to == from {
		to = c.Nodes()[1]
	}
	from.MustCmd(t, "SET", "{k}stays", "v")
	from.MustCmd(t, "SET", "{k}moves", "v", "PX", "60000")
	m, err := c.OpenSlot(slot, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Move("{k}moves", "{k}none"); err != nil {
		t.Fatal(err)
	}
	if got := from.MustCmd(t, "GET", "{k}stays"); got != "v" {
		t.Errorf("a key that was not moved: got %v", got)
	}
	wantRefusal(t, from, fmt.Sprintf("ASK %d %s", slot, to.Addr()), "GET", "{k}moves")
	wantRefusal(t, to, "MOVED", "GET", "{k}moves")
	if got := masterOf(t, c, slot); got != from {
		t.Error("the slot has a new master before Finish")
	}

	if err := m.Finish(); err != nil {
		t.Fatal(err)
	}
	if got := masterOf(t, c, slot); got != to {
		t.Error("the slot has its old master after Finish")
	}
	wantRefusal(t, from, fmt.Sprintf("MOVED %d %s", slot, to.Addr()), "GET", "{k}stays")
	if got := to.MustCmd(t, "GET", "{k}stays"); got != "v" {
		t.Errorf("the key moved by Finish: got %v", got)
	}
	if ttl := to.MustCmd(t, "PTTL", "{k}moves").(int64); ttl <= 0 || ttl > 60000 {
		t.Errorf("a key with TTL 60000 has TTL %d", ttl)
	}
	if _, err := c.OpenSlot(slot, to); err == nil {
		t.Error("a slot was moved to its own master")
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	to := masterOf(t, c, slots-1)
	for i := range 250 { // more than a single batch
		masterOf(t, c, Slot("{k}")).MustCmd(t, "SET", "{k}"+strconv.Itoa(i), "v")
	}
	begin := time.Now()
	if err := c.Migrate(to, firstHundredSlots()...); err != nil {
		t.Fatal(err)
	}
	t.Logf("100 empty slots in %v", time.Since(begin))
	if err := c.Migrate(to, Slot("{k}")); err != nil {
		t.Fatal(err)
	}
	if got := to.MustCmd(t, "CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(Slot("{k}"))); got != int64(250) {
		t.Errorf("got %v keys, want 250", got)
	}
	if err := c.WaitSettled(); err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[int]bool{0: true, 99: true, 100: false} {
		if got := masterOf(t, c, slot) == to; got != want {
			t.Errorf("slot %d has moved: %v, want %v", slot, got, want)
		}
	}
}

func firstHundredSlots() (first []int) {
	for slot := range 100 {
		first = append(first, slot)
	}
	return first
}

func TestServersOutsideTheCluster(t *testing.T) {
	c, other := &Cluster{}, &Server{}
	_, _, err := c.WaitFailover(other)
	_, err2 := c.OpenSlot(0, other)
	for _, err := range []error{err, err2, c.Rejoin(other), c.Failover(other)} {
		if !errors.Is(err, errUnknownServer) {
			t.Errorf("got %v, want %v", err, errUnknownServer)
		}
	}
}

// Another process could also take a node's bus port; the node should then use another.
func TestBusPortTaken(t *testing.T) {
	t.Parallel()
	first := Start(t)
	port, err := spawn.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if first.Before7() {
		t.Skip("the bus port cannot be chosen")
	}
	node := &Server{bin: first.bin, major: first.major, dir: t.TempDir(), port: port, bus: first.port, cluster: true}
	if err := node.launch(); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, want %v", err, errPortTaken)
	}
}

func TestParseMember(t *testing.T) {
	const line = "07c3 127.0.0.1:30004@31004,host myself,slave,fail? e7d1 0 1426238317239 4 connected 7 9-11 [93->-292f]"
	m, err := parseMember(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	if m.id != "07c3" || m.addr != "127.0.0.1:30004" || m.master != "e7d1" || m.epoch != 4 || m.link != "connected" {
		t.Errorf("got %+v", m)
	}
	if !m.myself || m.isMaster() || !m.isFailing() {
		t.Errorf("got flags %q", m.flags)
	}
	for slot, want := range map[int]bool{6: false, 7: true, 8: false, 9: true, 11: true, 12: false, 93: false} {
		if got := m.serves(slot); got != want {
			t.Errorf("slot %d: got %v, want %v", slot, got, want)
		}
	}
	for _, bad := range []string{"", "a b c d e f g", "a b c d e f g h"} {
		if m, err := parseMember(strings.Fields(bad)); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}
