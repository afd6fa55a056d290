package samename

import (
	"context"
	"math/rand"
)

type Shop interface {
	Page
	//dibs:lock "a"
	Old(ctx context.Context, r *rand.Rand) error
}
