package goredisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/redis/go-redis/v9"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	invalidstore.Check(t, goredisstore.New(nil), "goredisstore.New")
	invalidstore.Check(t, goredisstore.New((*redis.Client)(nil)), "goredisstore.New")
	invalidstore.Check(t, goredisstore.New((*redis.ClusterClient)(nil)), "goredisstore.New")
}
