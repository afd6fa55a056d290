package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes has the kernel kill the command when its parent, more exactly the thread
// that has started it, is dead.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// adopt makes this process the parent of all descendants that have lost theirs, or ends
// that. Kernels before 3.4 cannot do it: such processes escape there.
func adopt(on bool) {
	value := uintptr(0)
	if on {
		value = 1
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
}

// visible reports whether /proc is there, and that of this process namespace.
func visible() bool {
	own, err := os.Readlink("/proc/self")
	return err == nil && own == strconv.Itoa(os.Getpid())
}

// processes returns all processes, or nothing where they are not visible.
func processes() []process {
	if !visible() {
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if p, ok := processOf(name); ok {
			all = append(all, p)
		}
	}
	return all
}

// processOf reads /proc/PID/stat: pid (name) state ppid pgrp … starttime, and the name may
// have anything in it.
func processOf(pid string) (p process, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return p, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 19
	if len(fields) <= start {
		return p, false
	}
	number := func(b []byte) int { n, _ := strconv.Atoi(string(b)); return n }
	p = process{
		pid: number([]byte(pid)), parent: number(fields[1]), group: number(fields[2]),
		dead: fields[0][0] == 'Z' || fields[0][0] == 'X', // nobody may ever reap it
	}
	p.start, _ = strconv.ParseUint(string(fields[start]), 10, 64)
	return p, p.pid > 0
}

// descendants returns those of a process that can be found at once, which are all of them if
// none is started or ends meanwhile, and none where the kernel does not list children. To read
// all of /proc takes longer the more processes there are.
func descendants(root int) (found []int) {
	next := []int{root}
	for len(next) > 0 {
		dir := "/proc/" + strconv.Itoa(next[0]) + "/task/"
		next = next[1:]
		threads, _ := os.ReadDir(dir)
		for _, thread := range threads {
			text, _ := os.ReadFile(dir + thread.Name() + "/children")
			for _, field := range bytes.Fields(text) {
				if pid, err := strconv.Atoi(string(field)); err == nil {
					found, next = append(found, pid), append(next, pid)
				}
			}
		}
	}
	return found
}

// ownChildren returns the children of this process: it may have had some before it became
// this program.
func ownChildren() map[int]uint64 {
	if errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD) {
		return nil
	}
	children := make(map[int]uint64)
	for _, p := range processes() {
		if p.parent == os.Getpid() {
			children[p.pid] = p.start
		}
	}
	return children
}

// nestedGuard reports whether a process is the guard of another dibs.
func nestedGuard(pid int) bool {
	line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return bytes.HasPrefix(line, []byte("dibs\x00"+guardVerb+"\x00"))
}

// sinceBoot is a clock that all processes share, and that goes on while the machine is
// suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail
	return time.Duration(t.Nano())
}

// An alarm is a file that can be read from at a time of the boot clock: the timeout of
// poll(2) stands still while the machine is suspended.
type alarm int

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1 // poll's own timeout has to do
	}
	return alarm(fd)
}

// set sets the alarm, or turns it off.
func (a alarm) set(at time.Duration) {
	var spec unix.ItimerSpec
	if at != never {
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
	}
	if a >= 0 {
		_ = unix.TimerfdSettime(int(a), unix.TFD_TIMER_ABSTIME, &spec, nil)
	}
}

// hasChildren reports whether there are processes to be waited for. Where the guard adopts
// what is orphaned, none is left of the command if it has no children: also processes that
// live for too short a time to be seen in a list, and start others, are its children's.
func hasChildren() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}
