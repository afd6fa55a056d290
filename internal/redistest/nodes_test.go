package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
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
		t.Errorf("%q on %s: have %v, %v, want %s", args, s.Addr(), value, err, refusal)
	}
}

func TestClusterSharesItsSlots(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 0)
	if nodes, addrs := c.Nodes(), c.Addrs(); len(nodes) != 3 || len(addrs) != 3 || addrs[0] != nodes[0].Addr() {
		t.Fatalf("have nodes %v at %v, want 3", nodes, addrs)
	}
	for slot, i := range map[int]int{0: 0, 5460: 0, 5461: 1, 10921: 1, 10922: 2, 16383: 2} {
		if have := masterOf(t, c, slot); have != c.Nodes()[i] {
			t.Errorf("slot %d: have %s, want node %d", slot, have.Addr(), i)
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

func TestClusterReplacesAMuteMaster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1, "--requirepass", "sesame")
	drillCluster(t, c)

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
	if have := masterOf(t, c, 0); have != promoted || have == paused {
		t.Errorf("%s paused, %s took over, and %s serves", paused.Addr(), promoted.Addr(), have.Addr())
	}
}

// drillCluster kills the master of a key, and returns when all is well again.
func drillCluster(t *testing.T, c *Cluster) {
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
	if have := masterOf(t, c, Slot("k")); have != promoted || promoted == dead {
		t.Errorf("%s died, %s took over, and %s serves its slot", dead.Addr(), promoted.Addr(), have.Addr())
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
	if have := masterOf(t, c, 0); have == old || !old.running() {
		t.Errorf("%s serves the slots of %s, which runs: %v", have.Addr(), old.Addr(), old.running())
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
	if have := from.MustCmd(t, "GET", "{k}stays"); have != "v" {
		t.Errorf("a key that stays: have %v", have)
	}
	wantRefusal(t, from, fmt.Sprintf("ASK %d %s", slot, to.Addr()), "GET", "{k}moves")
	wantRefusal(t, to, "MOVED", "GET", "{k}moves")
	if have := masterOf(t, c, slot); have != from {
		t.Error("the slot has a new master before the end")
	}

	if err := m.Finish(); err != nil {
		t.Fatal(err)
	}
	if have := masterOf(t, c, slot); have != to {
		t.Error("the slot has its old master after the end")
	}
	wantRefusal(t, from, fmt.Sprintf("MOVED %d %s", slot, to.Addr()), "GET", "{k}stays")
	if have := to.MustCmd(t, "GET", "{k}stays"); have != "v" {
		t.Errorf("the key that stayed until the end: have %v", have)
	}
	if ttl := to.MustCmd(t, "PTTL", "{k}moves").(int64); ttl <= 0 || ttl > 60000 {
		t.Errorf("a key with a time to live of 60000 has %d", ttl)
	}
	if _, err := c.OpenSlot(slot, to); err == nil {
		t.Error("a slot can be moved to where it is")
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	to := masterOf(t, c, slots-1)
	for i := range 250 { // more than go at a time
		masterOf(t, c, Slot("{k}")).MustCmd(t, "SET", "{k}"+strconv.Itoa(i), "v")
	}
	begin := time.Now()
	if err := c.Migrate(to, hundred()...); err != nil {
		t.Fatal(err)
	}
	t.Logf("100 empty slots in %v", time.Since(begin))
	if err := c.Migrate(to, Slot("{k}")); err != nil {
		t.Fatal(err)
	}
	if have := to.MustCmd(t, "CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(Slot("{k}"))); have != int64(250) {
		t.Errorf("have %v keys, want 250", have)
	}
	if err := c.WaitSettled(); err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[int]bool{0: true, 99: true, 100: false} {
		if have := masterOf(t, c, slot) == to; have != want {
			t.Errorf("slot %d has moved: %v, want %v", slot, have, want)
		}
	}
}

func hundred() (first []int) {
	for slot := range 100 {
		first = append(first, slot)
	}
	return first
}

func TestStrangersToACluster(t *testing.T) {
	c, stranger := &Cluster{}, &Server{}
	_, _, err := c.WaitFailover(stranger)
	_, err2 := c.OpenSlot(0, stranger)
	for _, err := range []error{err, err2, c.Rejoin(stranger), c.Failover(stranger)} {
		if !errors.Is(err, errStranger) {
			t.Errorf("have %v, want %v", err, errStranger)
		}
	}
}

// Somebody else may take the port of a node's bus as well.
func TestABusPortTakenIsToldFromASuccess(t *testing.T) {
	t.Parallel()
	first := Start(t)
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	node := &Server{bin: first.bin, dir: t.TempDir(), port: port, bus: first.port, cluster: true}
	if err := node.launch(); !errors.Is(err, errPortTaken) {
		t.Errorf("have %v, want %v", err, errPortTaken)
	}
}

func TestParseMember(t *testing.T) {
	const line = "07c3 127.0.0.1:30004@31004,host myself,slave,fail? e7d1 0 1426238317239 4 connected 7 9-11 [93->-292f]"
	m, err := parseMember(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	if m.id != "07c3" || m.addr != "127.0.0.1:30004" || m.master != "e7d1" || m.epoch != 4 || m.link != "connected" {
		t.Errorf("have %+v", m)
	}
	if !m.myself || m.isMaster() || !m.fails() {
		t.Errorf("have flags %q", m.flags)
	}
	for slot, want := range map[int]bool{6: false, 7: true, 8: false, 9: true, 11: true, 12: false, 93: false} {
		if have := m.serves(slot); have != want {
			t.Errorf("slot %d: have %v, want %v", slot, have, want)
		}
	}
	for _, bad := range []string{"", "a b c d e f g", "a b c d e f g h"} {
		if m, err := parseMember(strings.Fields(bad)); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}
