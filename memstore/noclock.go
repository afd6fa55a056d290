package memstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// A noClock takes the place of the tables of a store whose clock is nil.
type noClock struct{}

var errNoClock = fmt.Errorf("%w: memstore.Clock: the function is nil", driver.ErrInvalid)

// Do implements kvstore.Tables.
func (noClock) Do(context.Context, *kvstore.Operation) error { return errNoClock }

// Watch implements kvstore.Tables.
func (noClock) Watch(context.Context, string, func() bool, func(driver.Event)) error {
	return errNoClock
}
