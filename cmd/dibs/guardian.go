package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guardian is the guard as its owner sees it.
type guardian struct {
	pid     int
	pipe    *os.File
	in      *os.File       // the guard's end of it: what a guard that was killed has not read
	answers <-chan string  // closed when the guard is gone
	apart   map[int]uint64 // children that this process has had before
	until   time.Time      // when it is to kill the command; zero: never
	late    bool           // it was told to go on after that, and so for nothing
	reaped  chan struct{}
	ending  sync.Once
}

// guardPatience is how long a guard is waited for, on a machine that has much to do.
const guardPatience = 10 * time.Second

// startGuard starts a guard, in a process group of its own, and waits until it is ready. The
// command gets its files from it, and so it has those of this process.
func startGuard() (*guardian, error) {
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, pipe.Close(), in.Close())
	}
	defer out.Close()
	g := &guardian{pipe: pipe, in: in, apart: ownChildren(), reaped: make(chan struct{})}
	adopt(true)
	if g.pid, err = forkGuard(in, out); err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), pipe.Close(), in.Close(), answers.Close())
	}
	g.answers = linesOf(answers)
	go g.watch()
	select {
	case _, ready := <-g.answers:
		if ready {
			return g, nil
		}
		err = errors.New("it ended")
	case <-time.After(guardPatience):
		err = errors.New("it does not answer")
	}
	g.end()
	return nil, fmt.Errorf("start the guard: %w", err)
}

// forkGuard starts the program of the guard. The two files get numbers that nobody uses: those
// below may be open for the command.
func forkGuard(in, out *os.File) (pid int, err error) {
	self := "/proc/self/exe" // also after an upgrade has replaced the file
	if runtime.GOOS != "linux" {
		if self, err = os.Executable(); err != nil {
			return 0, err
		}
	}
	args := []string{"dibs", guardVerb}
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}()
	for _, f := range []*os.File{in, out} {
		fd, err := inherited(f)
		if err != nil {
			return 0, err
		}
		fds = append(fds, fd)
		args = append(args, strconv.Itoa(fd))
	}
	return syscall.ForkExec(self, args, &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1"},
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
}

// inherited returns another number of a file, which programs that are started have, too.
func inherited(f *os.File) (fd int, err error) {
	const high, low = 100, 3
	if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, high); err != nil {
		fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, low)
	}
	return fd, err
}

// linesOf reads what a guard answers, until it is gone.
func linesOf(f *os.File) <-chan string {
	lines := make(chan string, 16)
	go func() {
		defer f.Close()
		defer close(lines)
		for in := bufio.NewScanner(f); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

// watch waits for the guard's end. One that somebody has stopped could not do its work, and is
// continued.
func (g *guardian) watch() {
	defer close(g.reaped)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(g.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			_ = syscall.Kill(g.pid, syscall.SIGCONT)
		default:
			return
		}
	}
}

// errNotStarted says that the guard was dead before it was told to start anything.
var errNotStarted = errors.New("the guard is gone")

// start has the guard start a command, in the foreground of the terminal if it may.
func (g *guardian) start(c command, terminal bool) (*child, error) {
	text, err := json.Marshal(order{c.path, rawTexts(c.argv), rawTexts(c.env), terminal})
	if err != nil {
		return nil, err
	}
	_ = g.pipe.SetWriteDeadline(time.Now().Add(guardPatience))
	if _, err := fmt.Fprintf(g.pipe, "start %s\n", text); err != nil {
		_ = syscall.Kill(g.pid, syscall.SIGKILL) // if it only did not read
		<-g.reaped
		return nil, errNotStarted
	}
	tree := tree{root: g.pid}
	for overdue := g.overdue(); ; {
		select {
		case <-overdue: // a file system that hangs: it must not be started any more
			tree.kill()
			overdue = time.After(10 * time.Millisecond)
		case line, ok := <-g.answers:
			if !ok && g.unread() {
				_ = syscall.Kill(g.pid, syscall.SIGKILL)
				<-g.reaped // or the next try would take it for alive
				return nil, errNotStarted
			}
			if !ok {
				return nil, errors.New("the guard was killed while it started the command")
			}
			word, rest, _ := strings.Cut(line, " ")
			if word != "started" {
				var r refusal
				_ = json.Unmarshal([]byte(rest), &r)
				return nil, exitWith(r.Code, errors.New(r.Error))
			}
			tree.pid, err = strconv.Atoi(rest)
			return &child{tree: tree}, err
		}
	}
}

// unread reports whether a part of what was written to the guard is still in its pipe.
func (g *guardian) unread() (unread bool) {
	raw, err := g.in.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		unread = err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
	})
	return unread
}

// overdue returns a channel that speaks when the time of the guard is over.
func (g *guardian) overdue() <-chan time.Time {
	if g.until.IsZero() {
		return nil
	}
	return time.After(time.Until(g.until))
}

// extend has the guard kill the command before a lease of this TTL ends, unless it is told
// another time before.
func (g *guardian) extend(until time.Time, ttl time.Duration) {
	const most = 50 * time.Millisecond // to find and kill all, on a busy machine
	until = until.Add(-min(most, ttl/50))
	if apart := until.Sub(g.until); -time.Millisecond < apart && apart < time.Millisecond {
		return
	}
	g.late = g.over()
	g.until = until
	// A guard that does not read is no reason to stop.
	_ = g.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a pipe has deadlines
	fmt.Fprintf(g.pipe, "until %d\n", sinceBoot()+time.Until(until))
}

// over reports whether the guard has killed the command, because it was not told in time.
func (g *guardian) over() bool {
	return g.late || !g.until.IsZero() && !time.Now().Before(g.until)
}

// lives reports whether the guard has not ended.
func (g *guardian) lives() bool {
	select {
	case <-g.reaped:
		return false
	default:
		return true
	}
}

// end dismisses the guard. What it has adopted is nobody's then: not this process' either.
func (g *guardian) end() {
	g.ending.Do(func() {
		adopt(false)
		_ = g.pipe.SetWriteDeadline(time.Now().Add(time.Second))
		fmt.Fprintln(g.pipe, "done")
		g.pipe.Close()
		g.in.Close()
		if g.lives() {
			_ = syscall.Kill(g.pid, syscall.SIGKILL) // if it does not read
		}
		<-g.reaped
	})
}

// A guardSoon is a guard that gets ready while something else is done.
type guardSoon struct {
	done  chan struct{}
	guard *guardian
	err   error
}

func startGuardSoon() *guardSoon {
	s := &guardSoon{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.guard, s.err = startGuard()
	}()
	return s
}

// ready returns the guard for a command that is about to be started, or another one if it
// was killed while dibs waited for the lock.
func (s *guardSoon) ready() (*guardian, error) {
	<-s.done
	if s.err == nil && s.guard.lives() {
		return s.guard, nil
	}
	s.dismiss()
	s.guard, s.err = startGuard()
	return s.guard, s.err
}

// end dismisses the guard, wanted or not.
func (s *guardSoon) end() {
	<-s.done
	s.dismiss()
}

func (s *guardSoon) dismiss() {
	if s.err == nil {
		s.guard.end()
	}
}
