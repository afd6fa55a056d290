package types

import (
	"context"
	"unsafe"
)

type local struct{}

type Shop interface {
	//dibs:lock "a"
	Do(ctx context.Context, f func(a, b int) (c string), in <-chan local, out chan<- *local, m map[string][]local, a [3]byte,
		s struct {
			A int `json:"a"`
			local
		}, i interface{ Close() error }, e any, p unsafe.Pointer, n func(...rune) uint8) (func() error, error)
	//dibs:lock "a"
	Group(ctx context.Context, a, b int, c string, d, e string, f int) error
}
