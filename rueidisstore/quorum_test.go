package rueidisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
)

func TestQuorumFaults(t *testing.T) {
	drill.Together(t, map[string]func(*testing.T){"minority": drills.QuorumMinority, "restart": drills.QuorumRestart})
}

func TestQuorumSplit(t *testing.T) {
	if !redistest.Long() {
		t.Skip("goredisstore runs it in make test; here it needs DIBS_LONG=1")
	}
	drills.QuorumSplit(t)
}
