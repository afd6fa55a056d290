//go:build go1.26

package version

import "context"

type Shop interface {
	//dibs:lock *new("a")
	Pay(ctx context.Context) error
}
