package cgo

import "context"

type Shop interface {
	//dibs:lock Name(id)
	Pay(ctx context.Context, id int) error
}
