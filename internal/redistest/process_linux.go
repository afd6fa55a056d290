package redistest

import "syscall"

// killWithParent makes the kernel kill the server when the thread that started it ends: a
// killed test binary runs no cleanup.
func killWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
