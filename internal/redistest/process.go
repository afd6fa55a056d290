package redistest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const termWithin = 3 * time.Second // for a server to leave after SIGTERM

// A process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// spawn starts a process whose output goes to a file: a pipe would need a reader
// that outlives it.
//
// Its leash is tied to the thread that started it, and Go ends a thread when it
// pleases. So one goroutine keeps its thread for as long as the process runs.
func spawn(bin string, args []string, output string) (*process, error) {
	out, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = leashed()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in its log
			close(p.exited)
		}
	}()
	return p, <-started
}

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.exited
}

func (p *process) stop() {
	_ = p.resume() // a paused process would not see SIGTERM
	_ = p.signal(syscall.SIGTERM)
	timer := time.NewTimer(termWithin)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.kill()
	}
}
