package dibs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// An object storage cannot compare fences, but it has conditional writes. So the metadata of the
// object contains the fence.
func ExampleFence() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	mutex, objects := locks.Mutex("document:7"), new(bucket)

	// save reads the stored fence, and writes only if no other write came in between.
	save := func(body string, fence uint64) error {
		old, etag := objects.get("7")
		stored, err := strconv.ParseUint(cmp.Or(old.metadata["fence"], "0"), 10, 64)
		if err != nil {
			return err
		}
		if fence < stored {
			return errors.New("rejected: a later holder has written")
		}
		return objects.put("7", object{body, map[string]string{"fence": fmt.Sprint(fence)}}, etag)
	}

	var late uint64 // the fence of a slow holder, which writes after the end of its lease
	first := mutex.Do(ctx, func(ctx context.Context) (err error) {
		late, err = dibs.Fence(ctx)
		return err
	})
	second := mutex.Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err // such as the outer ctx, which carries no lease
		}
		return save("new", fence)
	})
	fmt.Println(first, second)
	fmt.Println(save("old", late))
	kept, _ := objects.get("7")
	fmt.Println(kept.body)
	// Output:
	// <nil> <nil>
	// rejected: a later holder has written
	// new
}

// A bucket is an object storage such as S3: put is a PutObject with the header If-Match, or
// If-None-Match for the first write.
type bucket struct {
	objects map[string]object
	etags   map[string]int
}

type object struct {
	body     string
	metadata map[string]string
}

func (b *bucket) get(key string) (o object, etag int) { return b.objects[key], b.etags[key] }

func (b *bucket) put(key string, o object, ifMatch int) error {
	if b.etags[key] != ifMatch {
		return errors.New("412 Precondition Failed")
	}
	if b.objects == nil {
		b.objects, b.etags = make(map[string]object), make(map[string]int)
	}
	b.objects[key] = o
	b.etags[key]++
	return nil
}
