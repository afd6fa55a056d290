package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes makes the kernel kill the command when its parent dies; more precisely, when the
// thread that started it dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// setSubreaper sets whether this process adopts descendants whose parents die. Kernels before 3.4
// do not support it: such processes escape there.
func setSubreaper(on bool) {
	value := uintptr(0)
	if on {
		value = 1
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
}

// adoptsOrphans reports whether a subreaper adopts all a command's orphans.
const adoptsOrphans = true

// Limits describes Run's limits on this system. It returns "" if there are none.
func Limits() string {
	if procMounted() {
		return ""
	}
	return "/proc is missing: dibs signals the process group of the command only, and waits for its other processes"
}

// procMounted reports whether /proc is mounted and belongs to this PID namespace.
func procMounted() bool {
	own, err := os.Readlink("/proc/self")
	return err == nil && own == strconv.Itoa(os.Getpid())
}

// processes returns all processes, or nil if /proc cannot be read.
func processes() []process {
	if !procMounted() {
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

// processOf reads /proc/PID/stat: pid (name) state ppid pgrp … starttime. The name may
// contain any character, including parentheses.
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
		dead:    fields[0][0] == 'Z' || fields[0][0] == 'X', // its parent may never reap it
		stopped: fields[0][0] == 'T',
	}
	p.start, _ = strconv.ParseUint(string(fields[start]), 10, 64)
	return p, p.pid > 0
}

// listDescendants returns a process's descendants from the kernel's lists of children. It finds all
// if no process starts or ends meanwhile, and none on kernels without these lists. It is faster
// than scanning /proc, whose cost grows with the number of all processes.
func listDescendants(root int) (found []int) {
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

// ownChildren returns this process's children, with their start times. Some may exist from before
// exec turned this process into dibs.
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

// isWatchdog reports whether a process is a dibs watchdog.
func isWatchdog(pid int) bool {
	line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return bytes.HasPrefix(line, []byte("dibs\x00"+WatchdogArg+"\x00"))
}

// fileName returns an open file's name in /proc/PID/fd.
func fileName(f *os.File) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return name
}

// hasFile reports whether a process has a file open. If the process's files cannot be read, for
// example because they belong to another user, it returns true.
func hasFile(pid int, name string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	files, err := os.ReadDir(dir)
	for _, file := range files {
		if have, _ := os.Readlink(dir + file.Name()); have == name {
			return true
		}
	}
	return errors.Is(err, fs.ErrPermission)
}

// sinceBoot returns the boot clock. All processes share it, and it includes the time for
// which the machine was suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail
	return time.Duration(t.Nano())
}

// An alarm is a file that becomes readable at a given time on the boot clock. The timeout in
// poll(2) would not count suspend time.
type alarm int

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1 // poll still ends at its timeout
	}
	return alarm(fd)
}

// set sets the alarm to at, or turns it off if at is never.
func (a alarm) set(at time.Duration) {
	var spec unix.ItimerSpec
	if at != never {
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
	}
	if a >= 0 {
		_ = unix.TimerfdSettime(int(a), unix.TFD_TIMER_ABSTIME, &spec, nil)
	}
}
