package literal

import "context"

type Shop interface {
	interface {
		//dibs:lock "order:"+id
		Pay(ctx context.Context, id string) error
	}
	interface{ Close() error }
}
