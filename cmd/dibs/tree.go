package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// A process is what the system says of one.
type process struct {
	pid, parent, group int
	start              uint64 // no two processes have the same number and the same start
	dead               bool   // and not reaped yet
}

// A tree is a command and all that descends from it. The guard is the command's parent,
// and becomes that of every descendant that loses its own: so all of them are found,
// whatever groups and sessions they have gone to. Where the system does not tell who
// descends from whom, a tree is the command and its process groups.
type tree struct {
	root  int            // the process that all of them descend from
	apart map[int]uint64 // processes that are children of the root for another reason
	pid   int            // of the command, which leads its group
	asked map[int]uint64 // processes outside that group that were asked to end
}

// living returns all descendants that are not dead, of all processes.
func (t *tree) living(all []process) []process {
	return t.below(all, func(p process) bool {
		start, apart := t.apart[p.pid]
		return p.parent == t.root && p.pid != t.root && (!apart || start != p.start)
	}, func(process) bool { return true })
}

// members returns the processes that do the work of the command: itself, its group, and
// those that were started by one of these and still have their parents, whatever group they
// are in. What has lost its parent and left the group is a daemon, and on its own, unless it
// was asked to end before. Another dibs passes signals on to its command by itself.
func (t *tree) members(all []process) []process {
	return t.below(all, func(p process) bool {
		start, asked := t.asked[p.pid]
		return p.pid == t.pid || t.leads(p) || asked && start == p.start
	}, func(p process) bool { return t.leads(p) || !nestedGuard(p.pid) })
}

// below returns the processes that first picks, and those below them, unless with says no:
// then it and what is below it is left out. Those that are dead are only looked through.
func (t *tree) below(all []process, first, with func(process) bool) (found []process) {
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

// leads reports whether a process is in the command's group.
func (t *tree) leads(p process) bool { return t.pid > 1 && p.group == t.pid }

// signalGroup signals the command's process group. Before the start of the command there is
// none: number 0 would mean this process' own group, and whatever started dibs in it.
func (t *tree) signalGroup(s syscall.Signal) error {
	if t.pid <= 1 {
		return syscall.ESRCH
	}
	return syscall.Kill(-t.pid, s)
}

// signal tells the members, each of them once. Who they are is found out before the first one
// can have ended, of which the others may lose their parents. Those that are asked to end
// belong to the command from then on.
func (t *tree) signal(s syscall.Signal) {
	told := make(map[int]bool)
	members := t.members(processes())
	_ = t.signalGroup(s)      // all of the group in one step, or it is gone
	for more := true; more; { // one of them may have started another one meanwhile
		more = false
		for _, p := range members {
			if told[p.pid] || p.group == t.pid {
				continue
			}
			_ = syscall.Kill(p.pid, s)
			told[p.pid], more = true, true
			if ends(s) {
				t.remember(p)
			}
		}
		if more {
			members = t.members(processes())
		}
	}
	t.signalMoved(s)
}

// signalMoved tells a command that has left its group, where the system does not say who
// belongs to it.
func (t *tree) signalMoved(s syscall.Signal) {
	if visible() {
		return
	}
	group, err := unix.Getpgid(t.pid)
	if err == nil && group != t.pid && group != unix.Getpgrp() {
		_ = syscall.Kill(-group, s)
	}
}

func (t *tree) remember(p process) {
	if t.asked == nil {
		t.asked = make(map[int]uint64)
	}
	t.asked[p.pid] = p.start
}

// signalAll tells all that descends from the command.
func (t *tree) signalAll(s syscall.Signal) {
	_ = t.signalGroup(s)
	for _, p := range t.living(processes()) {
		if p.group != t.pid {
			_ = syscall.Kill(p.pid, s)
		}
	}
	t.signalMoved(s)
}

// kill kills all that descends from the command, and reports whether something may be left:
// a process may have started another one in this moment. What cannot be killed does not
// count.
func (t *tree) kill() (left bool) {
	left = !errors.Is(t.signalGroup(syscall.SIGKILL), syscall.ESRCH)
	if len(t.apart) == 0 && visible() { // most of them, without delay
		for _, pid := range descendants(t.root) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	all := processes()
	if all == nil {
		t.signalMoved(syscall.SIGKILL)
		return left
	}
	left = false
	ours := t.living(all)
	own := make(map[int]bool)
	for _, p := range ours {
		own[p.pid] = true
	}
	for _, p := range ours {
		if own[p.group] { // in one step: none of the group can start another one in between
			_ = syscall.Kill(-p.group, syscall.SIGKILL)
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err == nil {
			left = true
		}
	}
	return left
}

// gone reports whether nothing is left of the command that it has to be waited for: of its
// group, of what was asked to end, or of all that descends from it.
func (t *tree) gone(all bool) bool {
	if !all && len(t.asked) == 0 && errors.Is(t.signalGroup(0), syscall.ESRCH) {
		return true
	}
	every := processes()
	switch {
	case every == nil:
		return errors.Is(t.signalGroup(0), syscall.ESRCH)
	case all:
		return len(t.living(every)) == 0
	}
	left := false
	for _, p := range every {
		left = left || p.group == t.pid && !p.dead
	}
	if len(t.asked) == 0 {
		return !left
	}
	for _, p := range t.members(every) {
		if left = true; p.group != t.pid {
			t.remember(p) // what it has started is waited for, too
		}
	}
	return !left
}
