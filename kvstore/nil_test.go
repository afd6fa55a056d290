package kvstore_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// A store without a bucket should return ErrInvalid from each call, and should not panic in the
// background.
func TestNil(t *testing.T) {
	type tables struct{ kvstore.Tables }
	for what, s := range map[string]*kvstore.Store{
		"kvstore.Bucket is nil":  kvstore.New(nil),
		"kvstore.Bucket is nil ": kvstore.New((*memory)(nil)),
		"kvstore.Tables are nil": kvstore.Over(nil), "kvstore.Tables are nil ": kvstore.Over((*tables)(nil)),
	} {
		synctest.Test(t, func(t *testing.T) {
			locks := dibs.New(s)
			defer locks.Close()
			_, lockErr := locks.Mutex("n").Lock(t.Context())
			_, inspectErr := locks.Inspect(t.Context(), "n")
			_, listErr := s.List(t.Context(), "*")
			extendErr := s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "a"}})[0]
			for _, err := range []error{lockErr, inspectErr, listErr, extendErr, s.Watch(t.Context(), "c", nil, nil)} {
				if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
					t.Errorf("%v, want ErrInvalid: %s", err, what)
				}
			}
		})
	}
}
