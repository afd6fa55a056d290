package redisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	invalidstore.Check(t, redisstore.New(nil), "redisstore.New")
	invalidstore.Check(t, redisstore.New((*redistest.Conn)(nil)), "redisstore.New")
}
