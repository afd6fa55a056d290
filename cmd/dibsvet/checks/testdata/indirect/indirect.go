// Package indirect uses dibs without an import of its own.
package indirect

import (
	"context"

	"example.com/testdata/indirect/app"
)

func lock(ctx context.Context, a *app.App) {
	_, _ = a.Locks.Mutex("a").Lock(ctx) // want `the lease is discarded`
}
