package lostlease

import (
	"testing"

	"github.com/dibslock/dibs"
)

// A test keeps a lock for its whole time.
func hold(t *testing.T, m *dibs.Mutex) {
	if _, err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
}
