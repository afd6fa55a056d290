package spawn

import "syscall"

func attributes(as *Account, death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as.credential(), Pdeathsig: death}
}
