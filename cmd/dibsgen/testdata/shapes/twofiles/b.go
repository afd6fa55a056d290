package twofiles

import (
	"context"
	"crypto/rand"
)

type (
	B interface {
		//dibs:lock rand.Text()
		Do(ctx context.Context) error
	}
	C interface {
		//dibs:lock "c"
		Do(ctx context.Context) error
	}
	None interface {
		Do(ctx context.Context) error
	}
)

var text = rand.Text()
