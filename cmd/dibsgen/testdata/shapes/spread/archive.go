package spread

import "context"

type Archive interface {
	//dibs:lock ids... wait=1s
	Move(ctx context.Context, ids []string) error
	//dibs:lock ids...
	Tag(ctx context.Context, tag string, ids ...string) (int, error)
	//dibs:lock names("order:", ids)...
	Delete(ctx context.Context, ids []int) error
	//dibs:lock []string{"a", "b"}...
	Swap(ctx context.Context) error
}

func names(prefix string, ids []int) []string { return nil }
