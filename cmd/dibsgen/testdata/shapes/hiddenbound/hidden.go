package hiddenbound

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/cmd/dibsgen/testdata/shapes/hiddenbound/model"
)

// The parameters of Store have the names of types and of a package.
type Store[T any] interface {
	//dibs:lock name[T](id)
	Put(ctx context.Context, id string, row T) error

	//dibs:lock name[T](id)
	Move(ctx context.Context, id, model, row2, context string, K ...T) (string, error)

	//dibs:lock name[T](id)
	Delete(ctx context.Context, id string, string int) (row T, err error)

	//dibs:lock name[T](id)
	Swap(ctx context.Context, id string) (row T, model int, err error)
}

type row struct{}

type Rows interface {
	Store[row]
}

type Models interface {
	Store[[]*model.Row]
}

type Texts interface {
	Store[string]
}

type Keyed[K any] interface {
	Store[map[string]K]
}

func name[T any](id string) string { return fmt.Sprintf("%T:%s", *new(T), id) }
