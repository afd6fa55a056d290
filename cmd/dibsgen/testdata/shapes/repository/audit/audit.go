// Package audit has an interface that others embed.
package audit

import (
	"context"
	"time"
)

type Entry struct {
	Actor string
	At    time.Time
}

type Trail[T any] interface {
	Record(ctx context.Context, actor string, value T) error
	History(ctx context.Context, from, to time.Time) ([]Entry, error)
	Forget(ctx context.Context, before time.Time) (removed int, err error)
}
