package pgtest

import "syscall"

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential(), Pdeathsig: syscall.SIGQUIT}
}
