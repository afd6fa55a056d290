//go:build !linux

package redistest

import "syscall"

// killWithParent has no effect here: a killed test binary leaves its servers behind.
func killWithParent() *syscall.SysProcAttr { return nil }
