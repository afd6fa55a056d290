package buckettest

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// watch watches a key through a handle, and changes it through the other.
func watch(ctx context.Context, a, b kvstore.Bucket) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	key := newKey()
	w := watched{calls: make(chan struct{}, 1), ended: make(chan error, 1)}
	go func() { w.ended <- a.Watch(watching, key, w.called) }()
	if err := w.await("it began"); err != nil {
		return err
	}
	if err := changes(ctx, b, key, w.await); err != nil {
		return err
	}
	cancel()
	select {
	case err := <-w.ended:
		_ = err // with any error or none
		return nil
	case <-time.After(soon):
		return fmt.Errorf("the Watch has not returned %v after its context ended", soon)
	}
}

// changes creates a key, writes and deletes it, and creates it again. It calls changed after each.
func changes(ctx context.Context, b kvstore.Bucket, key string, changed func(what string) error) error {
	var last kvstore.Value
	for range 2 {
		for _, what := range []string{"created", "written"} {
			next, err := write(ctx, b, key, []byte(what), last.Revision)
			if err != nil {
				return err
			}
			if err := changed("the key was " + what); err != nil {
				return err
			}
			last = next
		}
		if err := remove(ctx, b, key, last.Revision); err != nil {
			return err
		}
		if err := changed("the key was deleted"); err != nil {
			return err
		}
		last = kvstore.Value{}
	}
	return nil
}

// watched is a key with a Watch.
type watched struct {
	calls chan struct{} // full after a call
	ended chan error
}

func (w watched) called() {
	select {
	case w.calls <- struct{}{}:
	default: // a single call can report several changes
	}
}

// await waits for a call.
func (w watched) await(what string) error {
	select {
	case <-w.calls:
		return nil
	case err := <-w.ended:
		return fmt.Errorf("the Watch returned %w before its context ended", orNil(err))
	case <-time.After(soon):
		return fmt.Errorf("the Watch has not called %v after %s", soon, what)
	}
}
