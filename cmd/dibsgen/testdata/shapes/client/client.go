package client

import (
	"context"

	"github.com/dibslock/dibs/cmd/dibsgen/testdata/shapes/embedded"
	"github.com/dibslock/dibs/cmd/dibsgen/testdata/shapes/mutex"
)

// New uses a function of another package that does not exist before the first run.
var New = mutex.LockShop

type Client interface {
	//dibs:lock "order:"+o.ID
	Buy(ctx context.Context, o mutex.Order, shop embedded.Shop) (mutex.Receipt, error)
}
