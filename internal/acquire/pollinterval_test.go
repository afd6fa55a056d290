package acquire

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Behind a foreign holder, a waiter should poll often while the holder changes. A new holder shows
// by its token, or by a TTL larger than the last TTL minus the elapsed time.
func TestPollIntervalBehindForeignHolder(t *testing.T) {
	const soon = 2 * time.Millisecond
	first := driver.AcquireReply{Holder: "1", Position: 1, Remaining: 5 * time.Second, Poll: soon}
	for what, test := range map[string]struct {
		change func(*driver.AcquireReply)
		want   time.Duration
	}{
		"the same holder":                 {func(a *driver.AcquireReply) { a.Remaining -= soon }, 2 * soon},
		"the same holder, a rounded TTL":  {func(a *driver.AcquireReply) { a.Remaining -= soon / 2 }, 2 * soon},
		"the same holder, later":          {func(a *driver.AcquireReply) { a.Remaining -= time.Second }, 2 * soon},
		"another token":                   {func(a *driver.AcquireReply) { a.Holder = "2" }, soon},
		"the same token, a TTL that grew": {func(*driver.AcquireReply) {}, soon},
		"a lock that never expires":       {func(a *driver.AcquireReply) { a.Remaining = -1 }, 2 * soon},
	} {
		t.Run(what, func(t *testing.T) {
			var p pollInterval
			if have := p.next(first, 0); have != soon {
				t.Fatalf("the first pause is %v, want %v", have, soon)
			}
			second := first
			test.change(&second)
			if have := p.next(second, 0); have != test.want {
				t.Errorf("the next pause is %v, want %v", have, test.want)
			}
		})
	}
}
