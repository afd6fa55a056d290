package spawn_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// FreePort should return no port twice, and no port that is in use or that a system selects. The
// test runs alone, because it uses a port of a later call.
func TestFreePort(t *testing.T) {
	first, err := spawn.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	next := first + 1
	if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", next)); err == nil {
		defer listener.Close()
	}
	seen := map[int]bool{first: true, next: true}
	for range 1000 {
		port, err := spawn.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < 1024 || port >= 32768 {
			t.Fatalf("port %d is in use, or not in the range", port)
		}
		seen[port] = true
	}
}
