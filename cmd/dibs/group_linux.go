package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// attributes has the kernel kill the child when this process, more exactly the thread
// that has started it, is gone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// working reports whether a process group has a member that is not a zombie, which
// nobody may ever reap: the first process of a container often does not.
func working(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil && workingIn(name, group) {
			return true
		}
	}
	return false
}

// workingIn reads /proc/PID/stat: pid (name) state ppid pgrp …, and the name may have
// anything in it.
func workingIn(pid string, group int) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return false
	}
	return string(fields[2]) == strconv.Itoa(group)
}
