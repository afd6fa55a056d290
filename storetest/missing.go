package storetest

import (
	"strings"
	"sync"
	"testing"

	"github.com/dibslock/dibs/driver"
)

// needs skips the test unless the store implements these optional interfaces.
func needs(t *testing.T, s *driver.Full, interfaces ...string) {
	t.Helper()
	for _, name := range interfaces {
		if !s.Has(name) {
			t.Skipf("the store is no driver.%s", name)
		}
	}
}

// completing returns a function to open a store with all optional interfaces. It logs once which
// interfaces the store lacks.
func completing(parent *testing.T, open func(t *testing.T) driver.Store) func(t *testing.T) *driver.Full {
	var once sync.Once
	return func(t *testing.T) *driver.Full {
		s := driver.Complete(open(t))
		once.Do(func() {
			if missing := s.Missing(); len(missing) > 0 {
				parent.Logf("the store lacks the optional interfaces %s: their cases are skipped", strings.Join(missing, ", "))
			}
		})
		return s
	}
}
