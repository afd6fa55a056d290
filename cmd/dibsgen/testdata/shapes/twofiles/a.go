package twofiles

import (
	"context"
	rand "math/rand/v2"
)

type A interface {
	//dibs:lock Name(rand.N(10))
	Do(ctx context.Context) error
}

func Name(int) string { return "a" }

var number = rand.N(10)
