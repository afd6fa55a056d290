package redistest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const stopTimeout = 3 * time.Second // for a server to end after SIGTERM

// A process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// spawn starts a process with its output in a file: a pipe would need a reader that
// outlives it.
//
// On Linux the kernel kills the process when the thread that started it ends, and Go may
// end any thread. So one goroutine keeps its thread while the process runs.
func spawn(bin string, args []string, output string) (*process, error) {
	out, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = killWithParent()
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

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended
	<-p.exited
}

func (p *process) stop() {
	_ = p.resume() // a paused process would not receive SIGTERM
	_ = p.signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.kill()
	}
}
