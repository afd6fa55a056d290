//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// now returns a monotonic clock that all processes of this machine share: a hand-off
// begins in one process and ends in another.
func now() time.Duration { return time.Since(processStart) + processStartAt }

// The shared clock needs a system call, which takes as long as a pass of a cohort. So it is
// read once, and time is measured from then on.
var processStart, processStartAt = time.Now(), sharedClock()

func sharedClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // this clock is always there
	}
	return time.Duration(ts.Nano())
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
