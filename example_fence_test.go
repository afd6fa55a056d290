package dibs_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A document rejects writes with an older fence than it has seen. Only the resource can do this: a
// lock cannot stop a write in progress.
type document struct {
	text  string
	fence uint64
}

func (d *document) save(text string, fence uint64) error {
	if fence < d.fence {
		return errors.New("rejected: older fence")
	}
	d.text, d.fence = text, fence
	return nil
}

func ExampleFence() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	mutex, doc := locks.Mutex("document"), new(document)

	// A slow holder writes after its lease ended.
	var late uint64
	first := mutex.Do(ctx, func(ctx context.Context) (err error) {
		late, err = dibs.Fence(ctx)
		return err
	})
	second := mutex.Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err // such as the outer ctx, which carries no lease
		}
		return doc.save("new", fence)
	})
	fmt.Println(first, second)
	fmt.Println(doc.save("old", late))
	fmt.Println(doc.text)
	// Output:
	// <nil> <nil>
	// rejected: older fence
	// new
}
