package genericnames

import (
	"context"
	"fmt"
)

// ID is a constraint.
type ID interface{ ~string | ~int64 }

type OrderID string

type Order struct{ ID OrderID }

// Store has directives with its type parameter: as an argument, in a conversion, as an element.
type Store[T any] interface {
	//dibs:lock name[T](id)
	Put(ctx context.Context, id string, value T) error

	//dibs:lock names(T(value), []T{value})...
	PutAll(ctx context.Context, value T) error

	//dibs:lock key(any(value).(T), field{T: "a"}.T)
	Touch(ctx context.Context, value T) error

	Get(ctx context.Context, id string) (T, error)
}

type field struct{ T string }

// Keyed has two parameters, with constraints.
type Keyed[K ID, V fmt.Stringer] interface {
	Store[V]
	//dibs:read pair[K, V](k)
	Find(ctx context.Context, k K) (V, error)
}

// Nested embeds Store with a type that is made of its own parameter, which is also called T.
type Nested[T any] interface {
	Store[map[string]T]
}

// Pages and Lists are aliases. A parameter has another name than that of Store.
type (
	Pages[E any]  = Store[[]E]
	Lists[X any]  = Pages[*X]
	Inline[Y any] = interface {
		//dibs:lock name[Y](id)
		Drop(ctx context.Context, id string) error
	}
)

type Orders interface {
	Pages[Order]
	Inline[chan<- int]
}

type Pointers interface {
	Lists[Order]
}

type Functions interface {
	Store[func(int) string]
}

type ByID interface {
	Keyed[OrderID, stringer]
}

type stringer struct{}

func (stringer) String() string { return "" }

// Rows and Columns are declared as Store, with its methods.
type (
	Rows           Store[int]
	Columns[C any] Store[C]
)

type Table interface {
	Columns[Order]
	//dibs:lock "table"
	Truncate(ctx context.Context) error
}

// Literal has a literal within, which uses the parameter of the type around it.
type Literal[P any] interface {
	interface {
		//dibs:lock name[P](id)
		Inside(ctx context.Context, id string) error
	}
}

type Deep interface {
	Literal[Order]
}

// Diamond embeds the same interface twice, on two ways.
type Diamond interface {
	left
	right
}

type (
	left  interface{ Store[Order] }
	right interface{ Store[Order] }
)

func name[T any](id string) string { return fmt.Sprintf("%T:%s", *new(T), id) }

func names[T any](value T, list []T) []string { return []string{fmt.Sprint(value, list)} }

func key[T any](value T, suffix string) string { return fmt.Sprint(value, suffix) }

func pair[K ID, V any](k K) string { return fmt.Sprint(k) }
