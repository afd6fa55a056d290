package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuOf returns the CPU time of a PostgreSQL server: of its first process and of all its
// children, including those that have ended. Without /proc it returns zero.
func cpuOf(pid int) (total time.Duration) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		text, _ := os.ReadFile(file) // the process may have ended
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		const parent, user, system, endedUser, endedSystem = 1, 11, 12, 13, 14
		if len(fields) <= endedSystem {
			continue
		}
		switch {
		case file == fmt.Sprintf("/proc/%d/stat", pid):
			total += ticks(fields[user], fields[system], fields[endedUser], fields[endedSystem])
		case fields[parent] == strconv.Itoa(pid):
			total += ticks(fields[user], fields[system])
		}
	}
	return total
}

// ticks adds CPU times of Linux, whose unit is 10 ms.
func ticks(fields ...string) (total time.Duration) {
	for _, f := range fields {
		n, _ := strconv.Atoi(f)
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
}
