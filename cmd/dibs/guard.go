package main

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

// The guard is a second process of dibs, and the parent of the command. Whoever kills the
// first one, which holds the lock, or stops it, must not leave the command running after the
// lock has gone to somebody else: the guard then kills the command and all that descends
// from it.
//
// It starts the command, so that there is no moment in which that runs and the guard does
// not know of it; and on Linux it adopts the processes whose parents are dead, so that none
// can leave its reach. It reads from a pipe whose other end only the first process has, and
// kills everything when that ends. What it reads is a line each:
//
//	start {…}  run this command: see order
//	until NS   everything is to be killed at that time of the boot clock, unless another
//	           such line comes before
//	done       there is nothing to guard any more
//
// and what it answers, too: ready, started PID, failed {…}, and changed STATUS each time that
// the command was stopped, or when it has ended.
//
// Who kills the guard kills the command, too, on Linux at least: the kernel does that, and
// dibs ends what descends from it.

// guardVerb is how dibs calls itself. It is no verb for people. The arguments are the numbers
// of two open files: one to read from, and one to answer to.
const guardVerb = "guard"

// An order is a command to be started.
type order struct {
	Path     string   `json:"path"`
	Argv     [][]byte `json:"argv"` // any bytes, as all of these
	Env      [][]byte `json:"env"`
	Terminal bool     `json:"terminal"` // put it into the foreground
}

// A refusal says why a command could not be started.
type refusal struct {
	Code  int    `json:"code"`
	Error string `json:"error"`
}

// A warden is the guard's own state.
type warden struct {
	in, out int
	events  *os.File // one can be read from it when a child has changed
	alarm   alarm
	text    []byte // read, and no whole line yet
	until   time.Duration
	tree    tree
	ended   bool // the first process is gone
	killing int  // how often nothing must be found yet
	sweeps  int  // since the killing began
	unseen  int  // sweeps that found nothing although there are children
	done    bool
}

const never time.Duration = math.MaxInt64

// guard is the whole program of the guard.
func guard(args []string) int {
	runtime.LockOSThread() // the kernel takes this thread for the command's parent
	w := &warden{alarm: newAlarm(), until: never, tree: tree{root: os.Getpid()}}
	if len(args) != 2 {
		return exitUsage
	}
	w.in, _ = strconv.Atoi(args[0])
	w.out, _ = strconv.Atoi(args[1])
	syscall.CloseOnExec(w.in)
	syscall.CloseOnExec(w.out)
	deaf()
	if err := w.listen(); err != nil {
		return exitTrouble
	}
	adopt(true)
	w.answer("ready")
	for !w.done {
		w.step()
	}
	return 0
}

// deaf lets no signal end the guard that can be caught. They are not ignored, because the
// command would inherit that.
func deaf() {
	dropped := make(chan os.Signal, 1)
	for n := syscall.Signal(1); n <= mostSignals; n++ {
		if forwarded(n) && !signal.Ignored(n) {
			signal.Notify(dropped, n)
		}
	}
}

// listen has the changes of children come as something to be read.
func (w *warden) listen() error {
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

// step waits until there is something to do, and does it. A guard that was stopped may find
// that the time is over and that another one was said meanwhile: then that counts.
func (w *warden) step() {
	fds := []unix.PollFd{
		{Fd: int32(w.in), Events: unix.POLLIN},
		{Fd: int32(w.events.Fd()), Events: unix.POLLIN},
		{Fd: int32(w.alarm), Events: unix.POLLIN},
	}
	if w.ended {
		fds[0].Fd = -1
	}
	_, err := unix.Poll(fds, int((w.pause()+time.Millisecond-1)/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		w.abandoned()
	}
	if fds[1].Revents != 0 {
		_, _ = unix.Read(int(fds[1].Fd), make([]byte, 64))
		w.reap()
	}
	if fds[0].Revents != 0 {
		w.read()
		return
	}
	if w.until <= sinceBoot() {
		w.setUntil(never)
		w.kill()
	}
	w.sweep()
}

// pause is how long there may be nothing to do.
func (w *warden) pause() time.Duration {
	const most, again, rare = time.Minute, time.Millisecond, 200 * time.Millisecond // what poll takes is an int
	left := most
	switch {
	case w.killing > 0 && w.unseen > 0:
		left = again
	case w.killing > 0:
		left = min(time.Duration(w.sweeps)*again, rare)
	}
	return max(0, min(left, w.until-sinceBoot()))
}

// read reads what the first process says.
func (w *warden) read() {
	buf := make([]byte, 1<<16)
	n, err := unix.Read(w.in, buf)
	switch {
	case errors.Is(err, unix.EINTR):
		return
	case err != nil || n <= 0:
		w.abandoned()
		return
	}
	w.text = append(w.text, buf[:n]...)
	for !w.done {
		line, rest, whole := bytes.Cut(w.text, []byte("\n"))
		if !whole {
			return
		}
		w.text = rest
		word, rest, _ := bytes.Cut(line, []byte(" "))
		w.obey(string(word), rest)
	}
}

func (w *warden) obey(word string, rest []byte) {
	switch word {
	case "done":
		w.done = true
	case "until":
		n, _ := strconv.ParseInt(string(rest), 10, 64)
		w.setUntil(time.Duration(n))
	case "start":
		w.start(rest)
	}
}

func (w *warden) setUntil(at time.Duration) {
	w.until = at
	w.alarm.set(at)
}

// start starts the command, as the leader of a process group.
func (w *warden) start(text []byte) {
	var o order
	err := json.Unmarshal(text, &o)
	if err == nil {
		w.tree.pid, err = o.start()
	}
	if err != nil {
		w.tree.pid = 0
		text, _ := json.Marshal(refusal{codeOf(err), err.Error()})
		w.answer("failed " + string(text))
		return
	}
	w.answer(fmt.Sprint("started ", w.tree.pid))
}

func (o order) start() (pid int, err error) {
	sys := attributes()
	sys.Setpgid = true
	if o.Terminal {
		if t, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
			defer t.Close()
			sys.Foreground, sys.Ctty = true, int(t.Fd())
		}
	}
	return spawn(command{path: o.Path, argv: texts(o.Argv), env: texts(o.Env)}, sys)
}

// reap learns what has become of the command, and buries what was adopted.
func (w *warden) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return
		case pid == w.tree.pid:
			w.answer(fmt.Sprint("changed ", int(status)))
		}
	}
}

// abandoned notes that the first process is gone.
func (w *warden) abandoned() {
	w.ended = true
	w.kill()
}

// mostUnseen bounds for how many sweeps in a row children may be unseen: they may be
// another user's, whom the guard cannot kill.
const mostUnseen = 10_000

// kill has everything killed, until twice nothing is found: a process that is being started
// may be overlooked once.
func (w *warden) kill() {
	w.setUntil(never)
	w.killing, w.sweeps, w.unseen = 2, 0, 0
	w.sweep()
}

// sweep kills, if that is under way, and ends the guard if nobody needs it any more.
func (w *warden) sweep() {
	w.sweeps++
	switch {
	case w.killing == 0:
	case w.tree.pid == 0:
		w.killing = 0
	case w.tree.kill():
		w.killing, w.unseen = 2, 0
	case w.unseen < mostUnseen && hasChildren():
		w.unseen++
	default:
		w.killing--
	}
	w.done = w.done || w.ended && w.killing == 0
}

// answer tells the first process something, if it is there.
func (w *warden) answer(line string) { _, _ = unix.Write(w.out, []byte(line+"\n")) }

func texts(all [][]byte) []string {
	var s []string
	for _, b := range all {
		s = append(s, string(b))
	}
	return s
}

func rawTexts(all []string) [][]byte {
	var b [][]byte
	for _, s := range all {
		b = append(b, []byte(s))
	}
	return b
}
