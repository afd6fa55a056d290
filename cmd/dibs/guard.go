package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second process of dibs. Whoever kills the first one, which holds the
// lock, or stops it, must not leave the command running after the lock has gone to
// somebody else: the guard then kills the command's process group.
//
// It is the one that makes the group, so that there is no moment in which the command
// runs and the guard does not know of it; and it ignores all that can be ignored, because
// what is meant for the command reaches it too. It reads from a pipe whose other end only
// the first process has, and kills the group when that ends. What it is told is a line
// each:
//
//	until NS   the group is to be killed at that time of the monotonic clock, unless
//	           another such line comes before
//	leave N    go to the process group N, and say so, but go on guarding the one that you
//	           have left: so that it can be seen whether that is empty
//	done       there is nothing to guard any more
//
// Linux can have a child killed when its parent dies, and dibs asks for that too; but it
// concerns the child alone, not what the child has started, and not a parent that is
// merely stopped.

// guardVerb is how dibs calls itself. It is no verb for people. An argument is the group
// to guard in place of the guard's own: if the guard before is dead.
const guardVerb = "guard"

// guard is the whole program of the guard.
func guard(args []string, in *os.File, out io.Writer) int {
	for n := syscall.Signal(1); n <= mostSignals; n++ {
		if forwarded(n) {
			signal.Ignore(n)
		}
	}
	signal.Ignore(syscall.SIGPIPE)                  // nobody may be left to hear the answers
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU) // they stop a whole group for what one of it does
	group := os.Getpid()
	if len(args) > 0 {
		group, _ = strconv.Atoi(args[0])
	}
	fmt.Fprintln(out, "ready")
	lines, until := bufio.NewReader(in), never
	for {
		if lines.Buffered() == 0 && !said(in, until) {
			killGroup(group)
			until = never
			continue
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			killGroup(group)
			return 0
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, _ := strconv.ParseInt(rest, 10, 64)
		switch word {
		case "done":
			return 0
		case "until":
			until = time.Duration(n)
		case "leave":
			_ = syscall.Setpgid(0, int(n)) // or there will seem to be something left
			fmt.Fprintln(out, "left")
		}
	}
}

const never time.Duration = math.MaxInt64

// said reports whether there is something to read before a time of the monotonic clock. A
// guard that was stopped, as with the whole group, may find both when it goes on: that the
// time is over, and that another one was said meanwhile. Then that counts.
func said(in *os.File, until time.Duration) bool {
	const most = time.Minute // what poll takes is an int
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	for {
		left := max(until-monotonic(), 0)
		wait := (min(left, most) + time.Millisecond - 1) / time.Millisecond
		n, err := unix.Poll(fds, int(wait))
		switch {
		case n > 0, err != nil && !errors.Is(err, unix.EINTR):
			return true // the end of it, too
		case n == 0 && left == 0:
			return false
		}
	}
}

func killGroup(group int) {
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL) // or it is gone
	}
}

// monotonic is a clock that all processes share.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

// A guardian is the guard as its owner sees it.
type guardian struct {
	cmd     *exec.Cmd
	pipe    *os.File
	answers *os.File
	group   int       // that it guards
	until   time.Time // when it is to kill it; zero: never
	late    bool      // it was told to go on after that, and so for nothing
}

// startGuard starts a guard, which leads a process group of its own, and waits until it
// is ready.
func startGuard(args ...string) (*guardian, error) {
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
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	defer out.Close()
	g := &guardian{cmd: exec.Command(self, append([]string{guardVerb}, args...)...), pipe: pipe, answers: answers}
	g.cmd.Args[0] = "dibs"
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Dir, g.cmd.Env = in, out, "/", []string{"GOMAXPROCS=1"}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), pipe.Close(), answers.Close())
	}
	g.group = g.cmd.Process.Pid
	if err := g.answered(); err != nil {
		g.end()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return g, nil
}

// answered waits for an answer.
func (g *guardian) answered() error {
	const patience = 10 * time.Second // of a machine that has much to do
	if err := g.answers.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := g.answers.Read(make([]byte, 16))
	return err
}

// extend has the guard kill the group at a time, unless it is told another one before.
func (g *guardian) extend(until time.Time) {
	if apart := until.Sub(g.until); -time.Millisecond < apart && apart < time.Millisecond {
		return
	}
	g.late = g.over()
	g.until = until
	g.tell("until %d\n", monotonic()+time.Until(until))
}

// over reports whether the guard has killed the group, because it was not told in time.
func (g *guardian) over() bool {
	return g.late || !g.until.IsZero() && !time.Now().Before(g.until)
}

// leave has the guard go out of the group, which it goes on guarding.
func (g *guardian) leave() {
	if g.group != g.cmd.Process.Pid {
		return
	}
	own := unix.Getpgrp()
	g.tell("leave %d\n", own)
	// It would stay if it is stopped; or if the group of dibs has no number in its process
	// namespace, as that of the first process often has none: nobody can join it.
	if own == 0 || g.answered() != nil {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
	}
}

// tell never blocks for long: a guard that is stopped is no reason to stop.
func (g *guardian) tell(format string, args ...any) {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a pipe has deadlines
	fmt.Fprintf(g.pipe, format, args...)
}

// lives reports whether the guard has its end of the pipe.
func (g *guardian) lives() bool {
	pipe, err := g.pipe.SyscallConn()
	if err != nil {
		return false
	}
	gone := 0
	err = pipe.Control(func(fd uintptr) { gone, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, 0) })
	return err == nil && gone <= 0
}

// keep has another guard take the place of one that is dead.
func (g *guardian) keep() {
	if g.lives() {
		return
	}
	next, err := startGuard(strconv.Itoa(g.group))
	if err != nil {
		return // the kernel has to do
	}
	next.group, next.late = g.group, g.late
	until := g.until
	g.end()
	*g = *next
	if !until.IsZero() {
		g.extend(until)
	}
}

// end dismisses the guard.
func (g *guardian) end() {
	fmt.Fprintln(g.pipe, "done")
	g.pipe.Close()
	g.answers.Close()
	_ = g.cmd.Process.Kill() // if it is stopped
	_ = g.cmd.Wait()
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

func (s *guardSoon) get() (*guardian, error) {
	<-s.done
	return s.guard, s.err
}

// ready is get for a command that is about to be started: if the guard was killed while
// dibs waited for the lock, with its group there is nothing to join, and another one is made.
func (s *guardSoon) ready() (*guardian, error) {
	g, err := s.get()
	if err == nil {
		if g.lives() {
			return g, nil
		}
		g.end()
	}
	s.guard, s.err = startGuard()
	return s.guard, s.err
}

// end dismisses the guard, wanted or not.
func (s *guardSoon) end() {
	if g, err := s.get(); err == nil {
		g.end()
	}
}
