package spawn

import "syscall"

func attributes(as *Account, death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as.credential(), Pdeathsig: death}
}

// awaitStop waits until all threads of a child have stopped, or until the child ends. On a busy
// machine, some threads run for a while after the signal, so a server could still reply.
func awaitStop(pid int) error {
	const byPID = 1
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, syscall.WSTOPPED|syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}
