package platform

import "context"

type Everywhere interface {
	//dibs:lock "a"
	Pay(ctx context.Context) error
}
