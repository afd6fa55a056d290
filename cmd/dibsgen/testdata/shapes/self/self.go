package self

import "context"

type Node[T any] interface {
	//dibs:lock "node"
	Next(ctx context.Context, n int) (Node[T], error)
	Parent() Node[T]
}

type Builder interface {
	//dibs:lock "builder"
	With(ctx context.Context, b Builder) (Builder, error)
}
