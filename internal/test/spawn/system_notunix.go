//go:build !unix

package spawn

import (
	"errors"
	"syscall"
)

func attributes(*Account, syscall.Signal) *syscall.SysProcAttr { return nil }

// Pause is not supported here.
func (p *Process) Pause() error { return errors.ErrUnsupported }

// Resume is not supported here.
func (p *Process) Resume() error { return errors.ErrUnsupported }
