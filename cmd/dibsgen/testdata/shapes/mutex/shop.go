package mutex

import "context"

type Order struct{ ID string }

type Receipt struct{}

type Shop interface {
	//dibs:lock "order:"+o.ID wait=3s
	Pay(ctx context.Context, o Order) (Receipt, error)
	//dibs:lock "order:"+id
	Cancel(ctx context.Context, id string) error
	Ping(ctx context.Context) error
}
