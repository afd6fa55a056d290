package options

import "context"

type All interface {
	//dibs:lock "a" ttl=20s wait=1500ms timeout=2s minhold=1m maxhold=36h label=web norenew reentrant
	A(ctx context.Context) error
	//dibs:lock "b" attempts=5/200ms
	B(ctx context.Context) error
	//dibs:lock "c" wait=0s
	C(ctx context.Context) error
	//dibs:lock "d" attempts=3/0s
	D(ctx context.Context) error
	//dibs:lock "e" label="quoted"
	E(ctx context.Context) error
}
