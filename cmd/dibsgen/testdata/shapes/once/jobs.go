package once

import "context"

type Jobs interface {
	//dibs:once "report:daily" 1h
	Report(ctx context.Context) error
	//dibs:once "letter:"+list 90s maxhold=10m
	Letters(ctx context.Context, list string) error
	//dibs:once "count" 50m
	Count(ctx context.Context) (int, error)
	//dibs:once "sum:"+err 50m
	Sum(ctx context.Context, err string) (a, b int, _ error)
}
