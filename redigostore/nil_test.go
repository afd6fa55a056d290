package redigostore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/redigostore"
	"github.com/dibslock/dibs/redisstore"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	const text = "redigostore.New: the redigo pool is nil"
	invalidstore.Check(t, redigostore.New(nil), text)
	invalidstore.Check(t, redigostore.New(nil, redisstore.WithReplicas(1, time.Second)), text)
}
