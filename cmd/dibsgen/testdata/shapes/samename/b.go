package samename

import (
	"context"
	"math/rand/v2"
)

type Page interface {
	//dibs:lock "page"
	New(ctx context.Context, r *rand.Rand) (rand.Source, error)
}
