//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func childAttributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

func setSubreaper(bool) {}

// procMounted returns false: this system has no /proc as on Linux.
func procMounted() bool { return false }

func processes() []process { return nil }

func listDescendants(int) []int { return nil }

func ownChildren() map[int]uint64 { return nil }

func isWatchdog(int) bool { return false }

// hasChildren returns false where the watchdog process adopts no orphans.
func hasChildren() bool { return false }

// sinceBoot returns a monotonic clock that all processes share.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

type alarm int

func newAlarm() alarm { return -1 }

func (alarm) set(time.Duration) {}
