package supervise

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// A process is an entry in the process table.
type process struct {
	pid, parent, group int
	start              uint64 // start time; pid and start are unique together
	dead               bool   // a zombie
	stopped            bool
}

// A tree is a command and all its descendants. The watchdog is the command's parent and the
// descendants' subreaper, so all can be found, in any process group or session. On systems without
// this information, a tree is the command and its process groups.
type tree struct {
	root          int            // the common ancestor
	otherChildren map[int]uint64 // children of the root that do not belong to the command
	pid           int            // the command, which leads its process group
	askedToEnd    map[int]uint64 // processes outside that group that received a termination signal
	file          string         // name of the pipe that all descendants inherit: see fileName
	leaveDaemons  bool           // see Rules
	groupGone     bool           // no process is in the group: its number may now belong to another group
}

// descendants returns all living descendants of the root among the processes in all.
func (t *tree) descendants(all []process) []process {
	return t.collect(all, t.isChild, func(process) bool { return true })
}

// isChild reports whether a process is the command or its orphan.
func (t *tree) isChild(p process) bool {
	start, apart := t.otherChildren[p.pid]
	return p.parent == t.root && p.pid != t.root && (!apart || start != p.start)
}

// isWorking reports whether an orphan is no daemon.
func (t *tree) isWorking(p process) bool {
	return !t.leaveDaemons && t.file != "" && !p.dead && hasFile(p.pid, t.file)
}

// members returns the processes that do the work of the command:
//   - the command and its process group,
//   - the descendants of these whose parents are alive, in any group,
//   - orphans that have the inherited pipe open, unless all orphans may be left,
//   - processes that were asked to end before.
//
// Other orphans are daemons: they have left the group and closed the files. They are left
// out. So is the watchdog of a nested dibs: that dibs forwards signals to its own command.
func (t *tree) members(all []process) []process {
	return t.collect(all, func(p process) bool {
		start, asked := t.askedToEnd[p.pid]
		return t.inGroup(p) || asked && start == p.start || t.isChild(p) && (p.pid == t.pid || t.isWorking(p))
	}, func(p process) bool { return t.inGroup(p) || !isWatchdog(p.pid) })
}

// collect returns the processes selected by first, and their descendants. If with returns false, it
// omits the process and its descendants. It omits dead processes, but not their descendants.
func (t *tree) collect(all []process, first, with func(process) bool) (found []process) {
	children := make(map[int][]process)
	var next []process
	for _, p := range all {
		if first(p) {
			next = append(next, p)
		} else {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		if !with(p) {
			continue
		}
		if !p.dead {
			found = append(found, p)
		}
		next = append(next, children[p.pid]...)
		delete(children, p.pid)
	}
	return found
}

// inGroup reports whether a process is in the command's group.
func (t *tree) inGroup(p process) bool { return t.pid > 1 && p.group == t.pid && !t.groupGone }

// groupEnded reports whether no process is in the group. Call it when the command is dead.
func (t *tree) groupEnded() bool {
	t.groupGone = t.groupGone || errors.Is(t.signalGroup(0), syscall.ESRCH)
	return t.groupGone
}

// signalGroup signals the command's process group. Before the command starts there is none: the
// number 0 would mean this process's own group, which includes dibs' callers.
func (t *tree) signalGroup(s syscall.Signal) error {
	if t.pid <= 1 || t.groupGone {
		return syscall.ESRCH
	}
	return syscall.Kill(-t.pid, s)
}

// signal sends s to each member once. It lists the members before the first signal: when a process
// ends, its children lose their parent and may no longer count as members. Processes that receive a
// termination signal count as members from then on.
func (t *tree) signal(s syscall.Signal) {
	signalled := make(map[int]bool)
	members := t.members(processes())
	_ = t.signalGroup(s)      // the whole group in a single step; it may be gone
	for more := true; more; { // a member may have started another process meanwhile
		more = false
		for _, p := range members {
			if signalled[p.pid] || p.group == t.pid {
				continue
			}
			err := syscall.Kill(p.pid, s)
			signalled[p.pid], more = true, true
			if IsTermination(s) && !errors.Is(err, syscall.EPERM) {
				t.markAsked(p)
			}
		}
		if more {
			members = t.members(processes())
		}
	}
	t.signalMovedGroup(s)
	if IsTermination(s) {
		t.continueStopped()
	}
}

// continueStopped continues stopped members: they handle no signal before.
func (t *tree) continueStopped() {
	all := processes()
	if all == nil {
		_ = t.signalGroup(syscall.SIGCONT)
	}
	for _, p := range t.members(all) {
		if p.stopped {
			_ = syscall.Kill(p.pid, syscall.SIGCONT)
		}
	}
}

// signalMovedGroup signals the group of a command that left its first group. It is for systems
// without process lists.
func (t *tree) signalMovedGroup(s syscall.Signal) {
	if procMounted() {
		return
	}
	group, err := unix.Getpgid(t.pid)
	if err == nil && group != t.pid && group != unix.Getpgrp() {
		_ = syscall.Kill(-group, s)
	}
}

func (t *tree) markAsked(p process) {
	if t.askedToEnd == nil {
		t.askedToEnd = make(map[int]uint64)
	}
	t.askedToEnd[p.pid] = p.start
}

// signalDescendants sends s to all the command's descendants.
func (t *tree) signalDescendants(s syscall.Signal) {
	_ = t.signalGroup(s)
	for _, p := range t.descendants(processes()) {
		if p.group != t.pid {
			_ = syscall.Kill(p.pid, s)
		}
	}
	t.signalMovedGroup(s)
}

// kill kills the command's descendants that it finds. It returns those that this process must not
// kill.
func (t *tree) kill() (refused []int) {
	_ = t.signalGroup(syscall.SIGKILL)
	t.signalMovedGroup(syscall.SIGKILL)
	all := t.findDescendants()
	own := make(map[int]bool)
	for _, pid := range all {
		own[pid] = true
	}
	for _, pid := range all {
		if group, err := unix.Getpgid(pid); err == nil && own[group] {
			_ = syscall.Kill(-group, syscall.SIGKILL) // in a single step: no member can start another in between
		}
		if errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) {
			refused = append(refused, pid)
		}
	}
	return refused
}

// findDescendants returns the root's descendants, including dead ones.
func (t *tree) findDescendants() (pids []int) {
	if !procMounted() {
		return nil
	}
	if len(t.otherChildren) == 0 {
		if pids = listDescendants(t.root); len(pids) > 0 {
			return pids
		}
	}
	for _, p := range t.descendants(processes()) {
		pids = append(pids, p.pid)
	}
	return pids
}

// askedLeft reports whether a process that was asked to end is left, or any process that it
// started.
func (t *tree) askedLeft() bool {
	if len(t.askedToEnd) == 0 {
		return false
	}
	members := t.members(processes())
	for _, p := range members {
		t.markAsked(p)
	}
	return len(members) > 0
}
