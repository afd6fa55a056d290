package pgtest

import (
	"os"
	"os/exec"
	"runtime"
)

// A process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// spawn starts a process. On Linux the kernel kills it when the thread that started it ends, and
// Go may end any thread. So one goroutine keeps its thread while the process runs.
func spawn(bin string, args []string, log *os.File) (*process, error) {
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its log says how it ended
			close(p.exited)
		}
	}()
	return p, <-started
}
