//go:build unix && !linux

package spawn

import "syscall"

// attributes cannot set the signal here: a killed test binary leaves its servers behind.
func attributes(as *Account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as.credential()}
}

// awaitStop does nothing: other systems stop a child soon after the signal.
func awaitStop(int) error { return nil }
