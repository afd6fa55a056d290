package dibsotel_test

import (
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

func newLocks(tb testing.TB, store driver.Store, options ...dibs.Option) *dibs.Client {
	locks := dibs.New(store, options...)
	tb.Cleanup(func() { locks.Close() })
	return locks
}
