package etcdtest

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Leader returns the index of the leader in Members, or -1 if no running member reports that it leads.
// An isolated leader can report this until its election timeout ends; the newest leader wins.
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

// leaderExcept returns the newest leader. It sends no request to an old leader, which may be paused.
func (c *Cluster) leaderExcept(old int) int {
	statuses := make([]status, len(c.Members))
	var requests sync.WaitGroup
	for i, s := range c.Members {
		if i != old {
			requests.Go(func() { statuses[i], _ = s.status() }) // a member that does not reply does not lead
		}
	}
	requests.Wait()
	leader, term := -1, uint64(0)
	for i, status := range statuses {
		if status.leads() && status.Term > term {
			leader, term = i, status.Term
		}
	}
	return leader
}

// A status is a member's answer about itself.
type status struct {
	Header struct {
		Member uint64 `json:"member_id,string"`
	}
	Leader uint64 `json:",string"` // 0 if the member has no leader
	Term   uint64 `json:"raftTerm,string"`
}

func (s status) leads() bool { return s.Leader != 0 && s.Leader == s.Header.Member }

// patience is how long a member may take for a status. A paused member sends none.
const patience = time.Second

func (s *Server) status() (status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var answer status
	err := s.Call(ctx, "/v3/maintenance/status", struct{}{}, &answer)
	return answer, err
}
