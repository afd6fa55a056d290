package hidden

import "context"

type receipt struct{}

type Shop interface {
	//dibs:lock receipt
	Pay(ctx context.Context, receipt string) (receipt, error)
	//dibs:lock string
	Name(ctx context.Context, string string) (string, error)
	//dibs:read int
	Count(ctx context.Context, int string) (map[string][]int, error)
}
