// Package operator lets one of many replicas run an operator's controllers. Its code is in
// docs/recipes/controller-runtime.md. It does not import controller-runtime, so that the dibs tests
// need not compile it.
package operator

import (
	"context"

	"github.com/dibslock/dibs"
)

// A Starter is the part of controller-runtime's manager.Manager used by Lead.
type Starter interface {
	// Start runs the controllers. It returns when ctx has ended and they have stopped.
	Start(ctx context.Context) error
}

// Lead runs the controllers in one of all replicas that call it, until ctx ends. It calls create at
// the start of each term.
func Lead(ctx context.Context, locks *dibs.Client, create func() (Starter, error)) error {
	return locks.Election("shop-operator").Run(ctx, func(ctx context.Context) error {
		manager, err := create() // a manager cannot be started twice, so each term has its own
		if err != nil {
			return err
		}
		return manager.Start(ctx)
	})
}
