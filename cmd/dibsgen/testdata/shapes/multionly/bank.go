package multionly

import "context"

type Bank interface {
	//dibs:lock "account:"+from, "account:"+to wait=3s
	Transfer(ctx context.Context, from, to string) error
}
