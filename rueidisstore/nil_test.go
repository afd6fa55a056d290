package rueidisstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/rueidisstore"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	const text = "rueidisstore.New: the rueidis client is nil"
	invalidstore.Check(t, rueidisstore.New(nil), text)
	invalidstore.Check(t, rueidisstore.New((*hookedClient)(nil)), text)
	invalidstore.Check(t, rueidisstore.New(nil, redisstore.WithReplicas(1, time.Second)), text)
}
