package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The watchdog process is a second process of dibs and the parent of the command. If the
// first process, the supervisor, is killed or stopped, it loses the lock. The command
// must not run on beside the next holder: the watchdog then kills the command and all its
// descendants.
//
// The watchdog starts the command itself, so the command never runs without a watchdog.
// On Linux it is the subreaper of all descendants: a process whose parent is dead becomes
// its child, so none can escape.
//
// The watchdog reads lines from a pipe whose other end only the supervisor has. When the
// pipe ends, the watchdog kills everything. The lines are:
//
//	start {…}  start this command: see startRequest
//	until NS   kill everything at that time of the boot clock, unless another such line
//	           arrives before
//	kill       kill everything now
//	done       exit without killing anything
//
// The watchdog answers with lines:
//
//	ready           it is ready to start a command
//	started PID     the command runs
//	failed {…}      it does not run: see startFailure
//	changed STATUS  the command was stopped or has ended
//	left N          what is left of the command: see remains
//	refused PID     a process must be killed, and the watchdog may not do it
//
// All descendants of the command inherit a pipe. A process that has left the process group
// and closed the pipe is a daemon.
//
// If the watchdog is killed, the kernel kills the command (on Linux), and the supervisor
// kills the descendants of the command.

// WatchdogArg is the hidden first argument that makes the program a watchdog process. The arguments
// after it are the numbers of four open files. It reads from the first and answers on the second.
// The others are the ends of the pipe that the command inherits.
const WatchdogArg = "watchdog"

// A watchdog process starts and ends here, before the stores' packages are initialised. This
// package does not import them, and Go orders packages by dependencies and then by path. So the
// watchdog starts in two thirds of the time. Each run waits for it.
func init() {
	if len(os.Args) > 1 && os.Args[1] == WatchdogArg {
		syscall.Exit(runWatchdog(os.Args[2:])) // at once: without exit hooks
	}
}

// A watchdogProcess is the watchdog process's state.
type watchdogProcess struct {
	reaper
	in, out    int
	inherited  int      // write end of the pipe that the command inherits
	events     *os.File // readable when a child changes state
	alarm      alarm
	unread     []byte // input without a complete line
	killAt     time.Duration
	reported   remains // remains known to the supervisor
	parentDead bool    // the supervisor is dead
	done       bool
}

const never time.Duration = math.MaxInt64

// runWatchdog is the watchdog process's main function. It returns the exit code.
func runWatchdog(args []string) int {
	const usage, trouble = 64, 125
	runtime.LockOSThread() // for the kernel, this thread is the command's parent
	if len(args) != 4 {
		return usage
	}
	var fds [4]int
	for i, arg := range args {
		fds[i], _ = strconv.Atoi(arg)
	}
	w := newWatchdogProcess(fds[0], fds[1], fds[2], fds[3])
	dropSignals()
	if err := w.listen(); err != nil {
		return trouble
	}
	setSubreaper(true)
	w.reply("ready")
	for !w.done {
		w.step()
	}
	return 0
}

func newWatchdogProcess(in, out, files, inherited int) *watchdogProcess {
	for _, fd := range []int{in, out, files} {
		syscall.CloseOnExec(fd)
	}
	return &watchdogProcess{
		reaper: reaper{tree: &tree{root: os.Getpid()}, files: os.NewFile(uintptr(files), "files")},
		in:     in, out: out, inherited: inherited, alarm: newAlarm(), killAt: never,
	}
}

// listen makes w.events readable when a child changes state.
func (w *watchdogProcess) listen() error {
	events, into, err := os.Pipe()
	if err != nil {
		return err
	}
	w.events = events
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			_, _ = into.Write([]byte{0})
		}
	}()
	return nil
}

// step waits for an event and handles it. Input comes before the kill time: a watchdog that was
// stopped may find its kill time over and a later kill time in the pipe. The later time counts.
func (w *watchdogProcess) step() {
	fds := []unix.PollFd{
		{Fd: int32(w.in), Events: unix.POLLIN},
		{Fd: int32(w.events.Fd()), Events: unix.POLLIN},
		{Fd: int32(w.alarm), Events: unix.POLLIN},
		{Fd: int32(w.files.Fd())}, // POLLHUP
	}
	if w.parentDead {
		fds[0].Fd = -1
	}
	if w.filesClosed {
		fds[3].Fd = -1
	}
	_, err := unix.Poll(fds, int((w.pollTimeout()+time.Millisecond-1)/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		w.parentDied()
	}
	if fds[1].Revents != 0 {
		_, _ = unix.Read(int(fds[1].Fd), make([]byte, 64))
		w.reap(func(status syscall.WaitStatus) { w.reply(fmt.Sprint("changed ", int(status))) })
	}
	w.filesClosed = w.filesClosed || fds[3].Revents&unix.POLLHUP != 0
	switch {
	case fds[0].Revents != 0:
		w.readOrders()
	case w.killAt <= sinceBoot():
		w.kill()
	}
	w.sweep(func(pid int) { w.reply(fmt.Sprint("refused ", pid)) })
	w.reportLeft()
}

// pollTimeout returns the time until the next sweep or the kill time, 1 min at most.
func (w *watchdogProcess) pollTimeout() time.Duration {
	const most = time.Minute // poll's timeout is an int
	return max(0, min(most, w.pause(), w.killAt-sinceBoot()))
}

// reportLeft reports the command's remains after a change. Without a supervisor, the watchdog exits
// when nothing is left.
func (w *watchdogProcess) reportLeft() {
	left := w.left()
	if left != w.reported && w.tree.pid != 0 {
		w.reported = left
		w.reply(fmt.Sprint("left ", int(left)))
	}
	w.done = w.done || w.parentDead && left == leftNothing
}

// readOrders reads input from the supervisor and executes the complete lines.
func (w *watchdogProcess) readOrders() {
	buf := make([]byte, 1<<16)
	n, err := unix.Read(w.in, buf)
	switch {
	case errors.Is(err, unix.EINTR):
		return
	case err != nil || n <= 0:
		w.parentDied()
		return
	}
	w.unread = append(w.unread, buf[:n]...)
	for !w.done {
		line, rest, whole := bytes.Cut(w.unread, []byte("\n"))
		if !whole {
			return
		}
		w.unread = rest
		word, rest, _ := bytes.Cut(line, []byte(" "))
		w.execute(string(word), rest)
	}
}

func (w *watchdogProcess) execute(word string, rest []byte) {
	switch word {
	case "done":
		w.done = true
	case "until":
		n, _ := strconv.ParseInt(string(rest), 10, 64)
		w.setKillAt(time.Duration(n))
	case "kill":
		w.kill()
	case "start":
		w.start(rest)
	}
}

func (w *watchdogProcess) setKillAt(at time.Duration) {
	w.killAt = at
	w.alarm.set(at)
}

// start starts the command, as a process group leader.
func (w *watchdogProcess) start(text []byte) {
	var o startRequest
	err := json.Unmarshal(text, &o)
	pid := 0
	if err == nil {
		pid, err = o.start()
	}
	_ = syscall.Close(w.inherited)
	if err != nil {
		w.reply("failed " + startFailureOf(err).text())
		return
	}
	w.tree.pid, w.tree.leaveDaemons = pid, o.LeaveDaemons
	w.noChild, w.reported = false, leftWork
	w.reply(fmt.Sprint("started ", pid))
}

func (o startRequest) start() (pid int, err error) {
	sys := childAttributes()
	sys.Setpgid = true
	if o.Terminal {
		if t, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
			defer t.Close()
			sys.Foreground, sys.Ctty = true, int(t.Fd())
		}
	}
	return Command{Path: o.Path, Argv: texts(o.Argv), Env: texts(o.Env)}.spawn(sys)
}

// parentDied records that the supervisor is dead, and starts to kill.
func (w *watchdogProcess) parentDied() {
	w.parentDead = true
	w.kill()
}

// kill starts to kill everything.
func (w *watchdogProcess) kill() {
	w.setKillAt(never)
	w.killing = true
}

// reply sends a line to the supervisor. It ignores a failure: that process is then dead.
func (w *watchdogProcess) reply(line string) { _, _ = unix.Write(w.out, []byte(line+"\n")) }
