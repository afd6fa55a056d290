package pipeline

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/serverclock"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A slow server, or a server that refuses a request, keeps its bounds.
func TestClockIsKeptAfterRefusals(t *testing.T) {
	p := newPipeline(nil, serverclock.New())
	for _, err := range []error{nil, context.DeadlineExceeded, redisconn.ErrUnsent, redisconn.ServerError("WRONGTYPE"), redisconn.ServerError("OOM command not allowed")} {
		p.clock.Learn(time.Now(), time.Now(), now)
		p.observeError(err)
		if p.clock.Latest(time.Now()) == 0 {
			t.Errorf("forgotten for %v", err)
		}
	}
}
