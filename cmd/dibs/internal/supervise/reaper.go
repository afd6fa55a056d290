package supervise

import (
	"errors"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A reaper waits for a command and all its descendants. It runs in the process that adopts the
// command's orphans: the watchdog process or, if that is dead, the supervisor.
//
// The kernel decides when the command is over: wait4 returns ECHILD when no child is left, and a
// descendant whose parent died is a child. A process list cannot decide this: a process that starts
// another and exits meanwhile may be in no list.
type reaper struct {
	tree         *tree
	files        *os.File // read end of a pipe whose write end all descendants inherit
	ended        bool     // the command itself was reaped
	noChild      bool     // wait4 returned ECHILD
	filesClosed  bool     // no process has the write end
	daemonsSince time.Time
	checks       int  // checks of the remaining processes since the command ended
	killing      bool // all descendants must end
	sweeps       int
	refused      map[int]bool
}

// remains says which processes of a command are alive.
type remains int

const (
	leftWork    remains = iota // the command, or processes doing its work
	leftDaemons                // daemons only: they have left the group and closed the files
	leftNothing
)

// reap reaps dead descendants. It calls changed when the command stops or ends.
func (r *reaper) reap(changed func(syscall.WaitStatus)) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			r.noChild = true
			return
		case pid <= 0:
			return
		case pid == r.tree.pid && !r.ended:
			r.ended = !status.Stopped()
			changed(status)
		}
	}
}

// left returns the command's remains.
func (r *reaper) left() remains {
	// A process closes its files shortly before it exits, and must not pass for a daemon meanwhile.
	const exiting = 50 * time.Millisecond
	switch {
	case r.nothingLeft():
		return leftNothing
	case !r.ended || !r.tree.leaveDaemons && !r.closed() || r.groupLeft():
		r.daemonsSince = time.Time{}
		return leftWork
	case r.daemonsSince.IsZero():
		r.daemonsSince = time.Now()
	}
	if time.Since(r.daemonsSince) < exiting {
		return leftWork
	}
	return leftDaemons
}

// nothingLeft reports whether the command and all its descendants are dead. Where orphans are not
// adopted, it sees only the command, its group, and the processes with its files open.
func (r *reaper) nothingLeft() bool {
	switch {
	case r.tree.pid == 0: // not started
		return true
	case len(r.tree.otherChildren) > 0 && !r.noChild:
		return r.ended && r.closed() && !r.groupLeft() && len(r.tree.descendants(processes())) == 0
	case adoptsOrphans:
		return r.noChild
	}
	return r.noChild && !r.groupLeft() && r.closed()
}

// closed reports whether no process has the inherited pipe open.
func (r *reaper) closed() bool {
	r.filesClosed = r.filesClosed || poll(r.files, 0)&unix.POLLHUP != 0
	return r.filesClosed
}

// groupLeft reports whether the command's process group contains a running process. A daemon may
// have children in the group that it never reaps.
func (r *reaper) groupLeft() bool {
	if r.tree.groupEnded() {
		return false
	}
	all := processes()
	for _, p := range all {
		if r.tree.inGroup(p) && !p.dead {
			return true
		}
	}
	return all == nil
}

// sweep kills the descendants that it finds, while a kill is in progress. A kill ends when nothing
// is left. sweep calls refused once for each process that this process must not kill.
func (r *reaper) sweep(refused func(pid int)) {
	if !r.killing || r.nothingLeft() {
		return
	}
	r.sweeps++
	for _, pid := range r.tree.kill() {
		if r.refused == nil {
			r.refused = make(map[int]bool)
		}
		if !r.refused[pid] {
			r.refused[pid] = true
			refused(pid)
		}
	}
}

// pause returns the time until the next sweep or check of the remains, without an earlier event.
// The pauses grow: a process may need long to exit, or run for hours.
func (r *reaper) pause() time.Duration {
	const step, longest = time.Millisecond, 200 * time.Millisecond
	switch {
	case r.tree.pid == 0 || r.noChild && adoptsOrphans:
	case r.killing:
		return min(time.Duration(r.sweeps)*step, longest)
	case r.ended:
		r.checks++
		return min(time.Duration(r.checks)*step, longest)
	}
	return math.MaxInt64
}

// poll returns a file's pending events among those in events, and POLLHUP.
func poll(f *os.File, events int16) (pending int16) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if n, err := unix.Poll(fds, 0); err == nil && n == 1 {
			pending = fds[0].Revents
		}
	})
	return pending
}
