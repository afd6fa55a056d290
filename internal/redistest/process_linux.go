package redistest

import "syscall"

// leashed has the kernel kill the server when the thread that started it ends:
// a test binary that is itself killed runs no cleanup.
func leashed() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
