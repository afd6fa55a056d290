package dibs_test

import (
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// To create a Mutex for each call, as in locks.Mutex("order:"+id).Lock(ctx), costs no
// allocation: the compiler inlines Client.Mutex.
func TestMutexIsFree(t *testing.T) {
	c := open(t, memstore.New())
	mutex := c.Mutex("n")
	pair := func(m *dibs.Mutex) {
		lease, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	kept := testing.AllocsPerRun(100, func() { pair(mutex) })
	created := testing.AllocsPerRun(100, func() { pair(c.Mutex("n")) })
	if created > kept {
		t.Errorf("%v allocations with a new Mutex, %v with one that is kept", created, kept)
	}
	reader := testing.AllocsPerRun(100, func() {
		lease, err := c.RWMutex("config").Reader().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
	})
	if reader > kept {
		t.Errorf("%v allocations with a new RWMutex, %v with a Mutex that is kept", reader, kept)
	}
}
