package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// ignoresContext is a store that ignores the context of List.
type ignoresContext struct{ driver.Store }

func (ignoresContext) List(context.Context, string) ([]string, error) {
	time.Sleep(2 * time.Second)
	return nil, nil
}

func TestListIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Poller{ignoresContext{memstore.New()}, time.Second}.Matching(t.Context(), "*")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("want DeadlineExceeded after 1s, have %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second) // until List has returned
	})
}
