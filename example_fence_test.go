package dibs_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A document refuses writes with an older fence than it has seen. Only the
// resource can do that: a lock cannot stop a write that is on its way.
type document struct {
	text  string
	fence uint64
}

func (d *document) save(text string, fence uint64) error {
	if fence < d.fence {
		return errors.New("refused: an older fence")
	}
	d.text, d.fence = text, fence
	return nil
}

func ExampleFence() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	mutex, doc := locks.Mutex("document"), new(document)

	// One holder is slow: its write is still on its way when its lease is over.
	var late uint64
	first := mutex.Do(ctx, func(ctx context.Context) error {
		late = dibs.Fence(ctx)
		return nil
	})
	second := mutex.Do(ctx, func(ctx context.Context) error {
		return doc.save("new", dibs.Fence(ctx))
	})
	fmt.Println(first, second)
	fmt.Println(doc.save("old", late))
	fmt.Println(doc.text)
	// Output:
	// <nil> <nil>
	// refused: an older fence
	// new
}
