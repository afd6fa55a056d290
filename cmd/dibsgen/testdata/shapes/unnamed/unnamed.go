package unnamed

import "context"

type Ctx struct{}

type Unnamed interface {
	//dibs:lock "a"
	None(context.Context, int, string) error
	//dibs:lock "a"+arg2
	Some(_ context.Context, arg2 string, _ int) error
	//dibs:lock ctx
	Taken(_ context.Context, ctx string) error
	Other(context.Context, ...int) error
}
