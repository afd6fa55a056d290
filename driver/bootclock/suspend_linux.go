package bootclock

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended returns the total suspend time since the machine booted. Go's monotonic clock stops
// during a suspend, while the server's TTL continues. The boot clock is read first: a preemption
// between the two readings can make the result too small for a moment, but never too large. So no
// lease is lost by mistake.
func suspended() time.Duration {
	boot, ok1 := gettime(clockBoottime)
	mono, ok2 := gettime(clockMonotonic)
	if !ok1 || !ok2 {
		return 0
	}
	return boot - mono
}

func gettime(clock uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
