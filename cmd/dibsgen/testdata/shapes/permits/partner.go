package permits

import "context"

const calls = 2

type Limits struct{ Calls int }

type Partner interface {
	//dibs:permits "partner" 4 wait=1m
	Upload(ctx context.Context, file string) error
	//dibs:permits "partner:"+name calls*2
	Download(ctx context.Context, name string) ([]byte, error)
	//dibs:permits "partner" limits.Calls norenew
	Call(ctx context.Context, limits Limits) error
}
