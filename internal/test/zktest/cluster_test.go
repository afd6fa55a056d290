package zktest

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

func leaderOf(t *testing.T, c *Cluster) int {
	t.Helper()
	leader, err := c.NewLeader(-1)
	must(t, err)
	wantLeader(t, c, leader)
	return leader
}

func wantLeader(t *testing.T, c *Cluster, want int) {
	t.Helper()
	eventually(t, func() error {
		if have := c.Leader(); have != want {
			return fmt.Errorf("the leader is %d, want %d", have, want)
		}
		return nil
	})
}

// wantSuccessor waits for a leader after the loss of another. The third member should follow.
func wantSuccessor(t *testing.T, c *Cluster, old int) {
	t.Helper()
	begin := time.Now()
	leader, err := c.NewLeader(old)
	must(t, err)
	t.Logf("another leader after %v", time.Since(begin))
	wantMode(t, c.Members[3-old-leader], "follower")
	t.Logf("it has a follower after %v", time.Since(begin))
}

func TestKilledLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	old := leaderOf(t, c)
	before, err := c.Members[old].status()
	must(t, err)
	c.Members[old].Kill()
	wantSuccessor(t, c, old)
	must(t, c.Members[old].Restart())
	wantMode(t, c.Members[old], "follower")
	after, err := c.Members[leaderOf(t, c)].status()
	must(t, err)
	if after.zxid>>32 <= before.zxid>>32 {
		t.Errorf("the epoch is %d, then %d", before.zxid>>32, after.zxid>>32)
	}
}

func TestPausedLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	old := leaderOf(t, c)
	must(t, c.Members[old].Pause())
	wantSuccessor(t, c, old)
	must(t, c.Members[old].Resume())
	wantMode(t, c.Members[old], "follower")
}

// An isolated leader should serve no client soon, while the others serve.
func TestIsolatedLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	old := leaderOf(t, c)
	c.Partition(old)
	begin := time.Now()
	wantSuccessor(t, c, old)
	wantIdle(t, c.Members[old])
	t.Logf("the isolated member is idle after %v", time.Since(begin))
	stays(t, c.Members[old])
	c.Heal()
	begin = time.Now()
	wantMode(t, c.Members[old], "follower")
	t.Logf("healed after %v", time.Since(begin))
}

// stays checks that an isolated member never serves.
func stays(t *testing.T, s *Server) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if have, err := s.status(); err == nil {
			t.Fatalf("an isolated member has the mode %s", have.mode)
		}
	}
}

// An isolated follower should serve no client, and the leader should stay.
func TestIsolatedFollower(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	leader := leaderOf(t, c)
	follower := (leader + 1) % 3
	c.Partition(follower)
	wantIdle(t, c.Members[follower])
	stays(t, c.Members[follower])
	wantLeader(t, c, leader)
	c.Heal()
	wantMode(t, c.Members[follower], "follower")
}

// A member that is cut from its leader should not serve, although it reaches the third member.
func TestCut(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	leader := leaderOf(t, c)
	follower, third := (leader+1)%3, (leader+2)%3
	c.Cut(leader, follower)
	wantIdle(t, c.Members[follower])
	wantMode(t, c.Members[third], "follower")
	c.Heal()
	wantMode(t, c.Members[follower], "follower")
}

func TestCloseCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
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
		if _, err := s.listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a proxy is left: %v", err)
		}
	}
}
