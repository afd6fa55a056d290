package driver_test

import (
	"testing"

	"github.com/dibslock/dibs/driver"
)

// Each kind has the name of its constant.
func TestEventKindString(t *testing.T) {
	for kind, want := range map[driver.EventKind]string{
		0: "EventKind(0)", driver.EventGranted: "Granted", driver.EventRetry: "Retry", driver.EventRevoked: "Revoked",
		driver.EventWanted: "Wanted", driver.EventConnected: "Connected", driver.EventDisconnected: "Disconnected",
		driver.EventFailover: "Failover", driver.EventFailover + 1: "EventKind(8)",
	} {
		if have := kind.String(); have != want {
			t.Errorf("%d is %s, want %s", int(kind), have, want)
		}
	}
}
