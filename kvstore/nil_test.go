package kvstore_test

import (
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/kvstore"
)

// A store without a bucket should return ErrInvalid from each call, and should not panic in the
// background.
func TestNil(t *testing.T) {
	type tables struct{ kvstore.Tables }
	for _, test := range []struct {
		what  string
		store *kvstore.Store
		names string
	}{
		{"nil bucket", kvstore.New(nil), "kvstore.New: the Bucket"},
		{"nil pointer to a bucket", kvstore.New((*memory)(nil)), "kvstore.New: the Bucket"},
		{"nil tables", kvstore.Over(nil), "kvstore.Over: the Tables"},
		{"nil pointer to tables", kvstore.Over((*tables)(nil)), "kvstore.Over: the Tables"},
		{"zero value", new(kvstore.Store), "kvstore.New"},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { invalidstore.Check(t, test.store, test.names) })
		})
	}
}
