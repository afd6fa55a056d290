package driver_test

import (
	"math"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

func TestRecordInterval(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: 9 * time.Second, 30 * time.Second: 270 * time.Second, 24 * time.Hour: 5 * time.Minute,
		33 * 365 * 24 * time.Hour: 5 * time.Minute, math.MaxInt64: 5 * time.Minute,
	} {
		if have := driver.RecordInterval(ttl); have != want {
			t.Errorf("TTL %v: %v, want %v", ttl, have, want)
		}
	}
}
