// Package spawn starts the servers of tests. On Linux they end with the process that started them.
package spawn

import (
	"net"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// A Process is one run of a server. It is safe for concurrent use.
type Process struct {
	Exited chan struct{} // closed when it has ended

	cmd *exec.Cmd
}

// Start starts a program with its output in a file: a pipe would need a reader that outlives it.
// as is its user; nil is that of this process. death is the signal with which it ends
// if this process is killed.
//
// The kernel sends that signal when the thread that started the program ends, and Go may
// end any thread. So one goroutine keeps its thread while the program runs.
func Start(bin string, args []string, output *os.File, as *syscall.Credential, death syscall.Signal) (*Process, error) {
	p := &Process{cmd: exec.Command(bin, args...), Exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = attributes(as, death)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its log says how it ended
			close(p.Exited)
		}
	}()
	return p, <-started
}

// Signal sends a signal. It fails if the process has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// End sends a signal and waits for the end. After the limit it kills the process.
func (p *Process) End(s syscall.Signal, limit time.Duration) {
	_ = p.Signal(s) // fails only if it has ended
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Exited:
	case <-timer.C:
		_ = p.cmd.Process.Kill() // likewise
		<-p.Exited
	}
}

// User returns the first user that exists, for a server that refuses to run as root. It
// returns nil if this process is not root.
func User(names ...string) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

// FreePort returns a port of the loopback address on which nobody listens.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
