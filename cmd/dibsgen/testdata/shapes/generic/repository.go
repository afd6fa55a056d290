package generic

import (
	"cmp"
	"context"
	"fmt"
)

type Repository[K cmp.Ordered, V any] interface {
	//dibs:lock fmt.Sprint("row:", key)
	Update(ctx context.Context, key K, change func(V) V) (V, error)
	//dibs:read fmt.Sprint("row:", key)
	Get(ctx context.Context, key K) (V, error)
	Len() int
}

type Named[K ~string] interface {
	//dibs:lock "k:"+string(key)
	Lock(ctx context.Context, key K) error
}

type Pair[_ any, B interface {
	~int | ~string
	fmt.Stringer
}] interface {
	//dibs:lock "pair"
	Put(ctx context.Context, b B) error
}

type Hidden[next any, locks, options any] interface {
	//dibs:lock "hidden"
	Put(ctx context.Context, a next, b locks, c options) (next, error)
}
