package localstore

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is the time since the machine was started, that of its suspensions
// included: nobody can step it. With it goes the boot's id.
func bootClock() (clock, error) {
	const file = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(id))) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	if err != nil { // another clock would end the leases of processes that read this one
		return clock{}, fmt.Errorf("it is not known since when the machine runs, so that leases of an earlier boot would look alive: mount /proc: %w", err)
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return clock{}, fmt.Errorf("the boot clock cannot be read: %w", err)
	}
	return clock{strings.TrimSpace(string(id)), sinceBoot}, nil
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it could be read when the store was opened
	return time.Duration(ts.Nano())
}
