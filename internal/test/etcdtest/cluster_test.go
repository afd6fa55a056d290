package etcdtest

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// wantSuccessor waits for a leader after the loss of another, and returns it.
func wantSuccessor(t *testing.T, c *Cluster, old int) int {
	t.Helper()
	begin := time.Now()
	leader, err := c.NewLeader(old)
	must(t, err)
	t.Logf("another leader after %v", time.Since(begin))
	mustPut(t, c.Members[leader], "order", "after")
	return leader
}

func leaderOf(t *testing.T, c *Cluster) int {
	t.Helper()
	leader, err := c.NewLeader(-1)
	must(t, err)
	mustPut(t, c.Members[leader], "order", "before")
	return leader
}

func TestKilledLeader(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	old := leaderOf(t, c)
	c.Members[old].Kill()
	wantSuccessor(t, c, old)
	must(t, c.Members[old].Restart())
	wantValue(t, c.Members[old], "order", "after")
}

func TestPausedLeader(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	old := leaderOf(t, c)
	must(t, c.Members[old].Pause())
	wantSuccessor(t, c, old)
	must(t, c.Members[old].Resume())
	wantValue(t, c.Members[old], "order", "after")
}

// An isolated leader should lose its leadership and serve no client, while the others serve.
func TestIsolatedLeader(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	old := leaderOf(t, c)
	c.Partition(old)
	begin := time.Now()
	leader := wantSuccessor(t, c, old)
	wantNoLeader(t, c.Members[old])
	t.Logf("no leader on the isolated member after %v", time.Since(begin))
	if err := put(c.Members[old], time.Second, "order", "lost"); err == nil {
		t.Error("an isolated leader accepts a value")
	}
	if _, err := get(c.Members[old], time.Second, "order"); err == nil {
		t.Error("an isolated leader returns a value")
	}
	mustPut(t, c.Members[leader], "order", "later")
	c.Heal()
	begin = time.Now()
	wantValue(t, c.Members[old], "order", "later")
	t.Logf("healed after %v", time.Since(begin))
}

// wantNoLeader waits until a member has no leader.
func wantNoLeader(t *testing.T, s *Server) {
	t.Helper()
	eventually(t, func() error {
		reply, err := s.status()
		if err == nil && reply.Leader != 0 {
			err = fmt.Errorf("%s has the leader %x", s.Endpoint(), reply.Leader)
		}
		return err
	})
}

// An isolated follower should serve no client, and the others should serve.
func TestIsolatedFollower(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	leader := leaderOf(t, c)
	follower := (leader + 1) % 3
	c.Partition(follower)
	wantNoLeader(t, c.Members[follower])
	if err := put(c.Members[follower], time.Second, "order", "lost"); err == nil {
		t.Error("an isolated follower accepts a value")
	}
	mustPut(t, c.Members[leader], "order", "after")
	c.Heal()
	wantValue(t, c.Members[follower], "order", "after")
}

// A member that is cut from its leader should lose it, and the third member should serve.
func TestCut(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	leader := leaderOf(t, c)
	before, err := c.Members[leader].status()
	must(t, err)
	follower, third := (leader+1)%3, (leader+2)%3
	c.Cut(leader, follower)
	eventually(t, func() error {
		reply, err := c.Members[follower].status()
		if err == nil && reply.Leader == before.Header.Member {
			err = errors.New("the follower has still its leader")
		}
		return err
	})
	mustPut(t, c.Members[third], "order", "after")
	c.Heal()
	wantValue(t, c.Members[follower], "order", "after")
}

func TestCloseCluster(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	if have := len(c.Endpoints()); have != 3 {
		t.Errorf("have %d endpoints, want 3", have)
	}
	must(t, c.Members[0].Pause())
	c.Partition(1)
	must(t, c.Close())
	for _, s := range c.Members {
		wantGone(t, s)
	}
	for _, s := range c.network.senders {
		wantRefused(t, s.addr)
		wantRefused(t, s.links[0].Addr())
	}
}
