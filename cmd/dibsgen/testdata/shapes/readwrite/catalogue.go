package readwrite

import "context"

type Catalogue interface {
	//dibs:read "catalogue"
	Show(ctx context.Context, page int) (string, error)
	//dibs:read "catalogue" wait=1s
	Check(ctx context.Context) error
	//dibs:read "catalogue"
	Bounds(ctx context.Context) (first, last int, err error)
	//dibs:write "catalogue"
	Publish(ctx context.Context, page int, text string) error
	//dibs:write "catalogue" maxhold=1m
	Number(ctx context.Context, page int) (int, error)
}
