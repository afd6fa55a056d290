package docs

import "context"

// Shop is documented.
type Shop interface {
	// Pay pays an order.
	//
	// It has a long comment.
	//
	//nolint:all
	//dibs:lock "order:"+id
	//go:fix inline
	Pay(ctx context.Context, id string) error // a comment after it

	/* Show has a block. */
	//dibs:read "catalogue"
	Show(ctx context.Context) error
}
