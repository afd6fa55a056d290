package unexported

import "context"

type shop interface {
	//dibs:lock "order:"+id wait=3s
	pay(ctx context.Context, id string) error
	next() int
	locks() int
	options() []string
	payOptions() []string
}

type Shop interface {
	//dibs:lock "order:"+id
	Pay(ctx context.Context, id string) error
}

type _shop interface {
	//dibs:lock "order:"+id
	Pay(ctx context.Context, id string) error
}
