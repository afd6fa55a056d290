package zkstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// If no server answers to a program's first request, its address is probably wrong. The command dibs
// run ends then, and does not wait.
func TestNoServer(t *testing.T) {
	t.Parallel()
	s := zkstore.New([]string{"127.0.0.1:1"})
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Release(ctx, driver.ReleaseRequest{Name: "n", Token: "token", LastUse: true})
	var e *driver.UnavailableError
	if !errors.As(err, &e) || !e.Unsent || !e.Unreached {
		t.Errorf("error %#v, want that no server was reached", err)
	}
}
