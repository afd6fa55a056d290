package lease

import (
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

// recordParts is in how many parts of the TTL the age of the record of a fence is counted.
const recordParts = 24

// recordAge returns the age of the last renewal at now, in parts of the TTL.
func (t *Times) recordAge(now, ttl time.Duration) int {
	return int((clock.Times(recordParts, now-t.deadlineFrom) + ttl/2) / ttl)
}

// isRecorded reports whether the store still has the record of the fence at the renewal that is
// sent now. Otherwise that one has it recorded, and the next renewals need not.
func (t *Times) isRecorded(now, ttl time.Duration) bool {
	return t.recorded > 0 && t.recordAge(now, ttl) <= int(t.recorded)
}

// recordKept records that the store has answered a renewal that was sent at sent. recorded means
// that it did not record the fence again.
func (t *Times) recordKept(sent, ttl time.Duration, recorded bool) {
	if recorded {
		t.recorded = uint8(max(int(t.recorded)-t.recordAge(max(sent, t.deadlineFrom), ttl), 0))
		return
	}
	t.recorded = uint8(recordParts * driver.RecordInterval(ttl) / ttl)
}

// ForgetRecord has the fence recorded again: a new master may not have received the record.
func (t *Times) ForgetRecord() { t.recorded = 0 }

// IsNew reports whether the lease was never renewed.
func (t *Times) IsNew() bool { return t.recorded == 0 }
