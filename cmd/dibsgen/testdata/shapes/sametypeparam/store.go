package sametypeparam

import (
	"context"
	err "fmt"
)

// Store has parameters and results with the names of its type parameters.
type Store[T, K any] interface {
	//dibs:lock "a"
	Put(ctx context.Context, T string, K ...int) (T, error)
	//dibs:lock "a:"+id
	Get(ctx context.Context, id string) (T T, K K, err error)
	//dibs:once "a" 1h
	Once(T context.Context) (K K, err error)
	//dibs:read T2
	Other(ctx context.Context, T string, T2 string) error
	Pass(T K, K T) (a T, b K)
}

// Blank has a type parameter without a name, and parameters with the name that it gets.
type Blank[_ any] interface {
	//dibs:lock P
	Put(ctx context.Context, P string) error
	//dibs:lock "a"
	Get(ctx context.Context) (P2 string, P3 int, err error)
}

// Unnamed has type parameters with the names that unnamed parameters get.
type Unnamed[ctx, arg2, lockedUnnamed, r1 any] interface {
	//dibs:lock "a"
	Put(context.Context, ctx, arg2) (lockedUnnamed, r1, error)
}

// Results has results with names that the function under the lock needs.
type Results interface {
	//dibs:lock "a"
	Error(ctx context.Context) (error string, n int, err error)
	//dibs:lock "a"
	Last(ctx context.Context) (a, b int, error error)
	//dibs:once "a" 1h
	Job(ctx context.Context) (error string, err error)
	//dibs:lock err.Sprint(id)
	Package(ctx context.Context, id int) (int, string, error)
	Text() err.Stringer
}

// Embedded gets the parameters of an interface that is not generic.
type Embedded[T any] interface {
	plain
	//dibs:lock "a"
	Drop(ctx context.Context, value T) error
}

type plain interface {
	//dibs:lock "a:"+id
	Plain(ctx context.Context, id, T string) error
}
