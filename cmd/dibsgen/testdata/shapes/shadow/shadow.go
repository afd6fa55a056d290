package shadow

import (
	"context"
	"time"
)

type Shop interface {
	//dibs:lock "a:"+time wait=3s
	At(ctx context.Context, time string) error
	//dibs:lock "a:"+context wait=3s
	In(ctx context.Context, context string) error
	//dibs:lock dibs+slices
	With(l context.Context, dibs, slices string) (time.Time, error)
	//dibs:lock "a"
	For(locks context.Context, next, options string) (d time.Duration, err error)
}
