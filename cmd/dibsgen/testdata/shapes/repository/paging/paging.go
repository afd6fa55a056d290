// Package paging has another one.
package paging

import (
	"context"
	"iter"
)

type Cursor string

type Pager[K comparable, V any] interface {
	Page(ctx context.Context, after Cursor, limit int) (values []V, next Cursor, err error)
	All(ctx context.Context) iter.Seq2[K, V]
	Count(ctx context.Context) (int, error)
	Close() error
}
