package localstore

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns the time since the machine started, including suspension. This clock cannot be
// set. It is identified by the boot ID and the time namespace: a container may have an offset, for
// instance after it was restored.
func bootClock() (clock, error) {
	const file = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(id))) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	if err != nil { // another clock would end the leases of processes using this one
		return clock{}, fmt.Errorf("cannot read the boot ID, without which leases of an earlier boot would seem valid; mount /proc: %w", err)
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return clock{}, fmt.Errorf("cannot read the boot clock: %w", err)
	}
	boot := strings.TrimSpace(string(id))
	var namespace unix.Stat_t
	if unix.Stat("/proc/self/ns/time", &namespace) == nil { // the kernel may have none
		boot += fmt.Sprintf("/%d", namespace.Ino)
	}
	return clock{boot, sinceBoot}, nil
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // reading it succeeded when the store was opened
	return time.Duration(ts.Nano())
}
