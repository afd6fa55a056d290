package taken

import "context"

type (
	lockedShop struct{}
	dibs       struct{}
	slices     struct{}
	l          struct{}
)

var err, r1, ctx string

type Shop interface {
	//dibs:lock ctx+err wait=3s
	Pay(_ context.Context, _ dibs, _ slices) (lockedShop, l, error)
	//dibs:once err+r1 1h
	Job(context.Context, l) (l, error)
}
