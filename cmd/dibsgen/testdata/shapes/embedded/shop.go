package embedded

import "context"

type Payer interface {
	//dibs:lock "order:"+id
	Pay(ctx context.Context, id string) error
}

type Shop interface {
	Payer
	//dibs:read "catalogue"
	Show(ctx context.Context) (string, error)
}

// Everything has no directive of its own.
type Everything interface {
	Shop
	Close() error
}
