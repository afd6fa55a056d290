package rueidisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/drill"
)

func TestQuorumFaults(t *testing.T) {
	drill.Shared(t)
	drill.Together(t, map[string]func(*testing.T){"minority": drills.QuorumMinority, "restart": drills.QuorumRestart})
}

func TestQuorumSplit(t *testing.T) {
	drill.Shared(t)
	drills.QuorumSplit(t)
}
