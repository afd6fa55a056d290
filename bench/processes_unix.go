//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// pause stops a process and its children. The process stops first, so it starts no others.
func pause(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	for _, child := range childrenOf(pid) {
		_ = unix.Kill(child, unix.SIGSTOP) // it may have ended
	}
	return nil
}

// resume ends a pause.
func resume(pid int) error {
	for _, child := range childrenOf(pid) {
		if err := unix.Kill(child, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return unix.Kill(pid, unix.SIGCONT)
}
