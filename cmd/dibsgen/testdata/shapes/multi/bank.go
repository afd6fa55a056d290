package multi

import "context"

type Bank interface {
	//dibs:lock "account:"+from, "account:"+to wait=3s // several names
	Transfer(ctx context.Context, from, to string, cents int64) error
	//dibs:lock "account:"+a, "account:"+b, "rates"
	Exchange(ctx context.Context, a, b string) (rate float64, err error)
}
