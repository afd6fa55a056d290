package supervise

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// A process is an entry of the process table.
type process struct {
	pid, parent, group int
	start              uint64 // start time; pid and start are unique together
	dead               bool   // a zombie
}

// A tree is a command and all its descendants. The watchdog is the parent of the command
// and the subreaper of all descendants: so all of them can be found, in any process group
// or session. On systems without this information, a tree is the command and its process
// groups.
type tree struct {
	root          int            // the common ancestor
	otherChildren map[int]uint64 // children of the root that do not belong to the command
	pid           int            // of the command, which leads its process group
	askedToEnd    map[int]uint64 // processes outside that group that received a termination signal
}

// descendants returns all living descendants of the root among the processes in all.
func (t *tree) descendants(all []process) []process {
	return t.collect(all, func(p process) bool {
		start, apart := t.otherChildren[p.pid]
		return p.parent == t.root && p.pid != t.root && (!apart || start != p.start)
	}, func(process) bool { return true })
}

// members returns the processes that do the work of the command:
//   - the command and its process group,
//   - the descendants of these whose parents are alive, in any group,
//   - processes that were asked to end before.
//
// A process that has left the group and whose parent is dead is a daemon. It is left out.
// So is the watchdog of a nested dibs: that dibs forwards signals to its own command.
func (t *tree) members(all []process) []process {
	return t.collect(all, func(p process) bool {
		start, asked := t.askedToEnd[p.pid]
		return p.pid == t.pid || t.inGroup(p) || asked && start == p.start
	}, func(p process) bool { return t.inGroup(p) || !isWatchdog(p.pid) })
}

// collect returns the processes that first selects, and their descendants. Where with
// returns false, it leaves out the process and its descendants. It leaves out dead
// processes, but not their descendants.
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
func (t *tree) inGroup(p process) bool { return t.pid > 1 && p.group == t.pid }

// signalGroup signals the command's process group. Before the start of the command there
// is none: the number 0 would mean this process's own group, which includes the callers
// of dibs.
func (t *tree) signalGroup(s syscall.Signal) error {
	if t.pid <= 1 {
		return syscall.ESRCH
	}
	return syscall.Kill(-t.pid, s)
}

// signal sends s to each member once. It lists the members before the first signal: when
// a process ends, its children lose their parent and may no longer count as members.
// Processes that receive a termination signal count as members from then on.
func (t *tree) signal(s syscall.Signal) {
	signalled := make(map[int]bool)
	members := t.members(processes())
	_ = t.signalGroup(s)      // the whole group in one step; it may be gone
	for more := true; more; { // a member may have started another process meanwhile
		more = false
		for _, p := range members {
			if signalled[p.pid] || p.group == t.pid {
				continue
			}
			_ = syscall.Kill(p.pid, s)
			signalled[p.pid], more = true, true
			if IsTermination(s) {
				t.markAsked(p)
			}
		}
		if more {
			members = t.members(processes())
		}
	}
	t.signalMovedGroup(s)
}

// signalMovedGroup signals the group of a command that has left its first group. It is
// for systems that do not list processes.
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

// signalDescendants sends s to all descendants of the command.
func (t *tree) signalDescendants(s syscall.Signal) {
	_ = t.signalGroup(s)
	for _, p := range t.descendants(processes()) {
		if p.group != t.pid {
			_ = syscall.Kill(p.pid, s)
		}
	}
	t.signalMovedGroup(s)
}

// kill kills all descendants of the command. It reports whether a process may be left:
// one of the killed processes may have started another one. Processes that this one may
// not kill do not count.
func (t *tree) kill() (left bool) {
	left = !errors.Is(t.signalGroup(syscall.SIGKILL), syscall.ESRCH)
	if len(t.otherChildren) == 0 && procMounted() { // a fast first pass for most processes
		for _, pid := range listDescendants(t.root) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	all := processes()
	if all == nil {
		t.signalMovedGroup(syscall.SIGKILL)
		return left
	}
	left = false
	ours := t.descendants(all)
	own := make(map[int]bool)
	for _, p := range ours {
		own[p.pid] = true
	}
	for _, p := range ours {
		if own[p.group] { // in one step: no member of the group can start another process in between
			_ = syscall.Kill(-p.group, syscall.SIGKILL)
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err == nil {
			left = true
		}
	}
	return left
}

// gone reports whether dibs need not wait for the command any longer: no process is left
// of its group and of those that were asked to end. If all is true, no descendant may be
// left.
func (t *tree) gone(all bool) bool {
	if !all && len(t.askedToEnd) == 0 && errors.Is(t.signalGroup(0), syscall.ESRCH) {
		return true
	}
	every := processes()
	switch {
	case every == nil:
		return errors.Is(t.signalGroup(0), syscall.ESRCH)
	case all:
		return len(t.descendants(every)) == 0
	}
	left := false
	for _, p := range every {
		left = left || p.group == t.pid && !p.dead
	}
	if len(t.askedToEnd) == 0 {
		return !left
	}
	for _, p := range t.members(every) {
		if left = true; p.group != t.pid {
			t.markAsked(p) // wait for its descendants as well
		}
	}
	return !left
}
