package goredisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/drill"
)

func TestQuorumFaults(t *testing.T) {
	drill.Together(t, map[string]func(*testing.T){"minority": drills.QuorumMinority, "restart": drills.QuorumRestart})
}

func TestQuorumSplit(t *testing.T) { drills.QuorumSplit(t) }

func TestVoteRights(t *testing.T) {
	t.Parallel()
	drills.VoteRights(t)
}
