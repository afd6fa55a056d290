package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The guard is a second process of dibs. Whoever kills the first one, which holds the
// lock, or stops it, must not leave the command running after the lock has gone to
// somebody else: the guard then kills the command's process group. It reads from a pipe
// whose other end only the first process has; what it is told is a line each:
//
//	group N    the process group to kill when the pipe ends
//	until MS   to be killed in so many ms, unless another such line comes before
//	done       the group is gone
//
// Linux can have a child killed when its parent dies, and dibs asks for that too; but it
// concerns the child alone, not what the child has started, and not a parent that is
// merely stopped.

// guardVerb is how dibs calls itself. It is no verb for people.
const guardVerb = "guard"

// guard is the whole program of the guard.
func guard(in io.Reader) int {
	for n := syscall.Signal(1); n <= mostSignals; n++ {
		if forwarded(n) {
			signal.Ignore(n)
		}
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var group int
	fuse := time.NewTimer(time.Hour)
	fuse.Stop()
	for {
		select {
		case <-fuse.C:
			killGroup(group)
		case line, more := <-lines:
			word, rest, _ := strings.Cut(line, " ")
			n, _ := strconv.Atoi(rest)
			switch {
			case !more:
				killGroup(group)
				return 0
			case word == "group":
				group = n
			case word == "until":
				fuse.Reset(time.Duration(n) * time.Millisecond)
			case word == "done":
				return 0
			}
		}
	}
}

func killGroup(group int) {
	if group > 1 {
		syscall.Kill(-group, syscall.SIGKILL)
	}
}

// A guardian is the guard as its owner sees it.
type guardian struct {
	cmd   *exec.Cmd
	pipe  *os.File
	group int
	until time.Time
}

// startGuard starts the guard, which has no command to guard yet.
func startGuard() (*guardian, error) {
	self := "/proc/self/exe" // also after an upgrade has replaced the file
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command(self, guardVerb)
	cmd.Args[0] = "dibs"
	cmd.Stdin, cmd.Dir, cmd.Env = in, "/", []string{"GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal to a group of ours is for it
	if err := cmd.Start(); err != nil {
		pipe.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guardian{cmd: cmd, pipe: pipe}, nil
}

// watch has the guard kill a group when this process is gone.
func (g *guardian) watch(group int) {
	g.group = group
	g.tell("group %d\n", group)
}

// extend has the guard kill the group at a time, unless it is told another one before.
func (g *guardian) extend(until time.Time) {
	if apart := until.Sub(g.until); -time.Millisecond < apart && apart < time.Millisecond {
		return
	}
	g.until = until
	g.tell("until %d\n", max(time.Until(until).Milliseconds(), 0))
}

// tell never blocks for long: a guard that is stopped is no reason to stop. If it is
// dead, another one takes its place.
func (g *guardian) tell(format string, args ...any) {
	g.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := fmt.Fprintf(g.pipe, format, args...); err == nil || os.IsTimeout(err) {
		return
	}
	g.end()
	next, err := startGuard()
	if err != nil {
		return // the parent's death is still told by the kernel
	}
	next.until = g.until
	*g = *next
	fmt.Fprintf(g.pipe, "group %d\n", g.group)
	fmt.Fprintf(g.pipe, format, args...)
}

// end dismisses the guard.
func (g *guardian) end() {
	fmt.Fprintln(g.pipe, "done")
	g.pipe.Close()
	g.cmd.Process.Kill() // if it is stopped
	g.cmd.Wait()
}
