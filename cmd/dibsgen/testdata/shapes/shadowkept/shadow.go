package shadowkept

import (
	"context"
	"time"
)

type Shop interface {
	//dibs:lock day.Format(time.DateOnly)
	At(ctx context.Context, day time.Time) error
	//dibs:lock time wait=3s
	In(ctx context.Context, time string, n int) (time.Duration, error)
}
