package dibs

import (
	"testing"
	"unsafe"
)

// A process may hold a million leases.
func TestLeaseIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(lease{}); size > 208 {
		t.Errorf("a lease has %d bytes, want at most 208, a size class of the allocator", size)
	}
}
