//go:build unix && !linux

package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

func adopt(bool) {}

// visible reports that there is no /proc to ask.
func visible() bool { return false }

func processes() []process { return nil }

func descendants(int) []int { return nil }

func ownChildren() map[int]uint64 { return nil }

func nestedGuard(int) bool { return false }

// hasChildren reports none where the guard adopts none.
func hasChildren() bool { return false }

// sinceBoot is a clock that all processes share.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

type alarm int

func newAlarm() alarm { return -1 }

func (alarm) set(time.Duration) {}
