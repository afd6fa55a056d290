package results

import (
	"context"
	"io"
)

type Store interface {
	//dibs:lock "a"
	None(ctx context.Context, n int) error
	//dibs:lock "a"
	One(ctx context.Context, n int) (io.Reader, error)
	//dibs:lock "a"
	Two(ctx context.Context, n int) (io.Reader, int, error)
	//dibs:lock "a"
	Named(ctx context.Context, n int) (l io.Reader, time int, err error)
	//dibs:once "a" 1h
	Unnamed(context.Context) (ctx string, strconv int, err error)
	//dibs:lock strconv.Itoa(n)
	Import(_ context.Context, n int) (ctx string, strconv int, err error)
	//dibs:lock "a"
	Blank(ctx context.Context, r1 int) (_ io.Reader, _ int, _ error)
	//dibs:lock prefix
	Hidden(ctx context.Context, n int) (prefix string, size int, err error)
	Nothing(n int)
	Value(n int) int
	Values(n int) (a, b int)
}

var prefix = "a"
