package notime

import "context"

type A interface {
	//dibs:lock "a" norenew label=x
	Do(ctx context.Context) error
}
