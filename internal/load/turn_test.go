package load_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

func TestOwnDelay(t *testing.T) {
	for _, test := range []struct {
		waited, ofAnswer time.Duration
		why              string
	}{
		{0, 0, ""},
		{4 * time.Millisecond, 0, ""},
		{20 * time.Millisecond, 80 * time.Millisecond, ""},
		{50 * time.Millisecond, 200 * time.Millisecond, "this process was late by 50ms: it has too little CPU"},
	} {
		if have := load.OwnDelay(test.waited); have != test.ofAnswer {
			t.Errorf("after %v an answer may wait for %v, want %v", test.waited, have, test.ofAnswer)
		}
		why := ""
		if err := load.TooLittleCPU(test.waited); err != nil {
			why = err.Error()
		}
		if why != test.why {
			t.Errorf("%v: %q, want %q", test.waited, why, test.why)
		}
	}
}
