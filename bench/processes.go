package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuOf returns a server's CPU time: for its first process and all its children, including ended
// children. Without /proc it returns zero.
func cpuOf(pid int) (total time.Duration) {
	const user, system, endedUser, endedSystem = 11, 12, 13, 14
	eachProcess(func(id int, parent string, fields []string) {
		switch {
		case id == pid:
			total += ticks(fields[user], fields[system], fields[endedUser], fields[endedSystem])
		case parent == strconv.Itoa(pid):
			total += ticks(fields[user], fields[system])
		}
	})
	return total
}

// childrenOf returns a process's children. Without /proc it returns none.
func childrenOf(pid int) (children []int) {
	eachProcess(func(id int, parent string, _ []string) {
		if parent == strconv.Itoa(pid) {
			children = append(children, id)
		}
	})
	return children
}

// eachProcess calls do for each process on this machine, with the fields of /proc/PID/stat from the
// third on.
func eachProcess(do func(id int, parent string, fields []string)) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		text, _ := os.ReadFile(file) // the process may have ended
		number, after, _ := strings.Cut(string(text), " ")
		_, after, _ = strings.Cut(after, ") ")
		id, err := strconv.Atoi(number)
		const parent, last = 1, 14
		if fields := strings.Fields(after); err == nil && len(fields) > last {
			do(id, fields[parent], fields)
		}
	}
}

// demandOf returns how long a process's first thread ran or waited for a processor. Without /proc
// it returns zero.
func demandOf(pid int) (total time.Duration) {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat") // the process may have ended
	const ran, waited = 0, 1
	for i, field := range strings.Fields(string(text)) {
		if i == ran || i == waited {
			n, _ := strconv.ParseInt(field, 10, 64)
			total += time.Duration(n)
		}
	}
	return total
}

// ticks adds Linux CPU times, in units of 10 ms.
func ticks(fields ...string) (total time.Duration) {
	for _, f := range fields {
		n, _ := strconv.Atoi(f)
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
}
