// A comment above the constraint.

//go:build linux || !nothing

package constraint

import "context"

type Shop interface {
	//dibs:lock "a"
	Pay(ctx context.Context) error
}
