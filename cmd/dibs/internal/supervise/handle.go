package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A handle is the supervisor's connection to its watchdog.
type handle struct {
	pid           int
	pipe          *os.File
	in            *os.File       // the watchdog's end, to find lines that a killed watchdog did not read
	files         *os.File       // see reaper
	replies       <-chan string  // closed when the watchdog exits
	otherChildren map[int]uint64 // earlier children of this process
	killAt        time.Time      // when the watchdog kills the command; zero: never
	late          bool           // an extension was sent after killAt, which is too late
	killOrdered   bool
	reaped        chan struct{}
	stopOnce      sync.Once
}

// watchdogTimeout limits the wait for a watchdog's answer. It allows for a busy machine.
const watchdogTimeout = 10 * time.Second

// startWatchdog starts a watchdog in its own process group and waits until it is ready. The
// watchdog inherits this process's standard files, and the command inherits them from the watchdog.
func startWatchdog() (*handle, error) {
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, pipe.Close(), in.Close())
	}
	defer out.Close()
	files, inherited, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, pipe.Close(), in.Close(), answers.Close())
	}
	defer inherited.Close()
	g := &handle{pipe: pipe, in: in, files: files, otherChildren: ownChildren(), reaped: make(chan struct{})}
	setSubreaper(true)
	if g.pid, err = forkWatchdog(in, out, files, inherited); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watchdog process: %w", err), pipe.Close(), in.Close(), answers.Close(), files.Close())
	}
	g.replies = linesOf(answers)
	go g.reap()
	select {
	case _, ready := <-g.replies:
		if ready {
			return g, nil
		}
		err = errors.New("it exited")
	case <-time.After(watchdogTimeout):
		err = fmt.Errorf("no answer within %v", watchdogTimeout)
	}
	g.stop()
	return nil, fmt.Errorf("start the watchdog process: %w", err)
}

// forkWatchdog starts the watchdog process. The files get high numbers, because the caller
// may have opened low numbers for the command.
func forkWatchdog(files ...*os.File) (pid int, err error) {
	self, err := program()
	if err != nil {
		return 0, err
	}
	args := []string{"dibs", WatchdogArg}
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}()
	for _, f := range files {
		fd, err := Inherit(f)
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

// program returns the path to this program.
func program() (string, error) {
	if procMounted() {
		return "/proc/self/exe", nil // valid even if an upgrade replaced the file
	}
	if path, err := os.Executable(); err == nil { // on Linux it needs /proc
		return path, nil
	}
	return exec.LookPath(os.Args[0])
}

// Inherit duplicates a file without close-on-exec, so that child processes such as the watchdog and
// the command inherit it. It returns the new number.
func Inherit(f *os.File) (fd int, err error) {
	const high, low = 100, 3
	if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, high); err != nil {
		fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, low)
	}
	return fd, err
}

// linesOf returns the lines in f, and closes the channel and f at the end.
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

// reap waits until the watchdog exits. It continues a stopped watchdog, because a stopped watchdog
// cannot kill the command.
func (g *handle) reap() {
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

// errWatchdogGone reports that the watchdog died before it received the start request.
var errWatchdogGone = errors.New("the watchdog process is dead")

// start makes the watchdog start a command. If terminal is true, the command gets the terminal's
// foreground. errWatchdogGone means that the command was not started and another watchdog can start
// it.
func (g *handle) start(c Command, terminal, leaveDaemons bool) (*child, error) {
	text, err := json.Marshal(startRequest{c.Path, rawTexts(c.Argv), rawTexts(c.Env), terminal, leaveDaemons})
	if err != nil {
		return nil, err
	}
	_ = g.pipe.SetWriteDeadline(time.Now().Add(watchdogTimeout))
	if _, err := fmt.Fprintf(g.pipe, "start %s\n", text); err != nil {
		_ = syscall.Kill(g.pid, syscall.SIGKILL) // it may be alive and not reading
		<-g.reaped
		return nil, errWatchdogGone
	}
	tree := tree{root: g.pid, file: fileName(g.files), leaveDaemons: leaveDaemons}
	for overdue := g.killTimer(); ; {
		select {
		case <-overdue: // starting takes too long, for example on a hanging file system: give up
			tree.kill()
			overdue = time.After(10 * time.Millisecond)
		case line, ok := <-g.replies:
			if !ok && g.unread() {
				_ = syscall.Kill(g.pid, syscall.SIGKILL)
				<-g.reaped // so that alive returns false
				return nil, errWatchdogGone
			}
			if !ok {
				g.killOrphans()
				return nil, errors.New("the watchdog process was killed while it started the command")
			}
			word, rest, _ := strings.Cut(line, " ")
			if word != "started" {
				return nil, startErrorOf(rest)
			}
			tree.pid, err = strconv.Atoi(rest)
			return &child{tree: tree, begun: time.Now()}, err
		}
	}
}

// killOrphans kills the processes started by a dead watchdog, and waits until none is left.
func (g *handle) killOrphans() {
	<-g.reaped // its children have a new parent then: this process
	r := reaper{tree: &tree{root: os.Getpid(), otherChildren: g.otherChildren}}
	for {
		r.tree.kill()
		r.reap(func(syscall.WaitStatus) {})
		if r.noChild || len(g.otherChildren) > 0 && len(r.tree.descendants(processes())) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// unread reports whether the pipe still contains unread input for the watchdog.
func (g *handle) unread() bool { return poll(g.in, unix.POLLIN)&unix.POLLIN != 0 }

// killTimer returns a channel that receives at killAt, or nil if there is no kill time.
func (g *handle) killTimer() <-chan time.Time {
	if g.killAt.IsZero() {
		return nil
	}
	return time.After(time.Until(g.killAt))
}

// extend sets the time at which the watchdog kills the command: shortly before until, the deadline
// for a lease with this TTL.
func (g *handle) extend(until time.Time, ttl time.Duration) {
	const most = 50 * time.Millisecond // enough to find and kill everything, on a busy machine
	until = until.Add(-min(most, ttl/50))
	if moved := until.Sub(g.killAt).Abs(); moved < time.Millisecond {
		return
	}
	g.late = g.expired()
	g.killAt = until
	_ = g.order(fmt.Sprintf("until %d", sinceBoot()+time.Until(until)))
}

// kill makes the watchdog kill all the command's descendants.
func (g *handle) kill() { g.killOrdered = g.killOrdered || g.order("kill") == nil }

// order sends a line. It does not block if the watchdog does not read.
func (g *handle) order(line string) error {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // pipes support it
	_, err := fmt.Fprintln(g.pipe, line)
	return err
}

// expired reports whether the kill time passed without an extension: then the watchdog killed the
// command.
func (g *handle) expired() bool {
	return g.late || !g.killAt.IsZero() && !time.Now().Before(g.killAt)
}

// alive reports whether the watchdog is still running.
func (g *handle) alive() bool {
	select {
	case <-g.reaped:
		return false
	default:
		return true
	}
}

// stop ends the watchdog. Remaining daemons become children of init: this process also stops being
// their subreaper.
func (g *handle) stop() {
	g.stopOnce.Do(func() {
		setSubreaper(false)
		_ = g.pipe.SetWriteDeadline(time.Now().Add(time.Second))
		fmt.Fprintln(g.pipe, "done")
		g.pipe.Close()
		g.in.Close()
		g.files.Close()
		if g.alive() {
			_ = syscall.Kill(g.pid, syscall.SIGKILL) // it may not read the line
		}
		<-g.reaped
	})
}
