// Package spawn starts servers for tests. On Linux they end with the process that started them.
package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// A Process is a single run of a server. It is safe for concurrent use.
type Process struct {
	Exited chan struct{} // closed when it ends

	cmd *exec.Cmd
}

// Start starts a program with its output in a file: a pipe would need a reader that outlives it. as
// is the user to run as; nil means the current user. death is the signal to end it if this process
// is killed.
//
// The kernel sends this signal when the starting thread ends, and Go can end any thread. So a
// goroutine keeps its thread while the program runs.
func Start(bin string, args []string, output string, as *Account, death syscall.Signal) (*Process, error) {
	return start(exec.Command(bin, args...), output, as, death)
}

func start(cmd *exec.Cmd, output string, as *Account, death syscall.Signal) (*Process, error) {
	file, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &Process{cmd: cmd, Exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
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

// Await polls until ready returns nil, for a limited time, or until the process ends.
func (p *Process) Await(limit time.Duration, ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited:
			return errors.New("the process has exited")
		case <-ctx.Done():
			return fmt.Errorf("not ready after %v: %w", limit, err)
		case <-tick.C:
		}
	}
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal. It fails after the process's end.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// End sends a signal and waits for the end. After the limit it kills the process. A paused process
// also receives the signal.
func (p *Process) End(s syscall.Signal, limit time.Duration) {
	_ = p.Signal(s) // fails only after its end
	_ = p.Resume()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Exited:
	case <-timer.C:
		p.Kill()
	}
}

// Kill ends the process without a shutdown.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only after its end
	<-p.Exited
}

// An Account is a system user.
type Account struct{ uid, gid int }

// User returns the first existing user, for a server that refuses to run as root. It returns nil if
// this process is not root.
func User(names ...string) *Account {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &Account{uid, gid}
		}
	}
	return nil
}

// Find returns the path to the first existing program: in PATH, or in the usual directories for
// daemons, which are often not in a user's PATH.
func Find(names ...string) (path string, found bool) {
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin", "/usr/local/bin"} {
		for _, name := range names {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, true
			}
		}
	}
	return "", false
}
