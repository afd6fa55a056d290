package genericembedded

import "context"

type Order struct{}

type Store[T any] interface {
	//dibs:lock "row:"+id
	Put(ctx context.Context, id string, value T) error
	Get(ctx context.Context, id string) (T, error)
}

type Orders interface {
	Store[*Order]
	//dibs:once "sweep" 1h
	Sweep(ctx context.Context) error
}
