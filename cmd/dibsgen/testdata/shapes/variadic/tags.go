package variadic

import "context"

type Tags interface {
	//dibs:lock "item:"+id
	Set(ctx context.Context, id string, tags ...string) error
	//dibs:lock "item:"+id
	Get(ctx context.Context, id string, options ...func(*int)) ([]string, error)
	List(prefixes ...string) []string
}
