package rueidisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/redistest"
)

func TestQuorumMinority(t *testing.T) { drills.QuorumMinority(t) }

func TestQuorumRestart(t *testing.T) { drills.QuorumRestart(t) }

func TestQuorumSplit(t *testing.T) {
	if !redistest.Long() {
		t.Skip("goredisstore runs it in make test; here it needs DIBS_LONG=1")
	}
	drills.QuorumSplit(t)
}
