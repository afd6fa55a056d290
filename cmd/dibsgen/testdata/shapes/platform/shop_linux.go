package platform

import "context"

type Shop interface {
	//dibs:lock "a"
	Pay(ctx context.Context) error
}
