package alias

import "context"

type Context = context.Context

type Text = string

type Failure = error

type Shop = interface {
	//dibs:lock "order:"+id
	Pay(ctx Context, id Text) Failure
}

type Defined Shop

// Same is no new type, and gets no decorator.
type Same = Defined

type Generic[T any] = interface {
	//dibs:lock "generic"
	Put(ctx Context, value T) (Text, error)
}
