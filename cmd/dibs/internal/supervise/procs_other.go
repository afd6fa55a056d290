//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func childAttributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

func setSubreaper(bool) {}

// adoptsOrphans reports whether a subreaper adopts all a command's orphans.
const adoptsOrphans = false

// Limits describes Run's limits on this system. It returns "" if there are none.
func Limits() string {
	return "on this system dibs signals the process group of the command only, and waits for its other processes while they keep its files open"
}

// procMounted returns false: this system has no /proc as on Linux.
func procMounted() bool { return false }

func processes() []process { return nil }

func listDescendants(int) []int { return nil }

func ownChildren() map[int]uint64 { return nil }

func isWatchdog(int) bool { return false }

func fileName(*os.File) string { return "" }

func hasFile(int, string) bool { return false }

// sinceBoot returns a monotonic clock shared by all processes.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

type alarm int

func newAlarm() alarm { return -1 }

func (alarm) set(time.Duration) {}
