package outerctx

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A test acts as another process, which does not have the lease in its context.
func TestExclusion(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	err := locks.Mutex("a").Do(t.Context(), func(ctx context.Context) error {
		_, err := locks.Mutex("a").TryLock(t.Context())
		return err
	})
	if !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
}
