package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/pgstore"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	s := pgstore.New(nil, pgstore.Option{})
	invalidstore.Check(t, s, "pgstore.New")
	for what, call := range map[string]func(context.Context) error{
		"Migrate":       s.Migrate,
		"SchemaVersion": func(ctx context.Context) error { _, err := s.SchemaVersion(ctx); return err },
		"Examine":       func(ctx context.Context) error { _, err := s.Examine(ctx); return err },
		"Guard":         func(ctx context.Context) error { return s.Guard(ctx, nil) },
	} {
		if err := call(t.Context()); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}
