package localstore

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns the time since the machine started, including suspension, and the
// boot ID. This clock cannot be set.
func bootClock() (clock, error) {
	const file = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(id))) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	if err != nil { // another clock would end the leases of processes that use this one
		return clock{}, fmt.Errorf("cannot read the boot ID, without which leases of an earlier boot would seem valid; mount /proc: %w", err)
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return clock{}, fmt.Errorf("cannot read the boot clock: %w", err)
	}
	return clock{strings.TrimSpace(string(id)), sinceBoot}, nil
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // reading it succeeded when the store was opened
	return time.Duration(ts.Nano())
}
