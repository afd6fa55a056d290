package zktest

import (
	"fmt"
	"sync"
	"time"
)

// Leader returns the index of the leader in Members, or -1 if no member reports that it leads. An
// isolated leader can report this for about 2 s; the newest leader wins. A paused member delays the
// result by 1 s.
func (c *Cluster) Leader() int { return c.leaderExcept(-1) }

// NewLeader waits until a member other than an old leader leads, and returns its index. It fails
// after 30 s. An old leader of -1 allows all members.
func (c *Cluster) NewLeader(old int) (int, error) {
	const longest = 30 * time.Second
	limit := time.After(longest)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if leader := c.leaderExcept(old); leader >= 0 {
			return leader, nil
		}
		select {
		case <-limit:
			return -1, fmt.Errorf("no new leader after %v", longest)
		case <-tick.C:
		}
	}
}

// leaderExcept returns the newest leader. It sends nothing to an old leader, which may be paused.
func (c *Cluster) leaderExcept(old int) int {
	statuses := make([]status, len(c.Members))
	var calls sync.WaitGroup
	for i, s := range c.Members {
		if i != old {
			calls.Go(func() { statuses[i], _ = s.status() }) // a member that does not reply does not lead
		}
	}
	calls.Wait()
	leader := -1
	for i, status := range statuses {
		if status.mode == "leader" && (leader < 0 || status.zxid > statuses[leader].zxid) {
			leader = i
		}
	}
	return leader
}
