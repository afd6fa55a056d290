package goredisstore_test

import "testing"

func TestQuorumMinority(t *testing.T) { drills.QuorumMinority(t) }

func TestQuorumRestart(t *testing.T) { drills.QuorumRestart(t) }

func TestQuorumSplit(t *testing.T) { drills.QuorumSplit(t) }

func TestVoteRights(t *testing.T) {
	t.Parallel()
	drills.VoteRights(t)
}
