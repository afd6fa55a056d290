//go:build unix

package spawn

import "syscall"

func (a *Account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// Pause stops the process and keeps its connections open, as when its machine is suspended.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.Pid())
}

// Resume ends a Pause.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
