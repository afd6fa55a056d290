//go:build !linux

package redistest

import "syscall"

// leashed can do nothing here: a killed test binary leaves its servers behind.
func leashed() *syscall.SysProcAttr { return nil }
