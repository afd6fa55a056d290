package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// sampling is the time between two samples of the machine.
const sampling = 250 * time.Millisecond

// late is how late a sample must be to count. A machine that is only busy is less late.
const late = 200 * time.Millisecond

// machine records when the machine did not run: the host of a virtual machine took the
// CPU, a container used up its share of it, or the machine was suspended.
type machine struct {
	mu      sync.Mutex
	from    time.Time     // when the current sample began
	stolen  time.Duration // stolenTime at that time
	samples []sample      // those with a loss
}

// sample is a stretch of time in which the machine lost something.
type sample struct {
	from, to time.Time
	lost     time.Duration
}

// watchMachine samples until the program ends.
func watchMachine() *machine {
	m := &machine{from: time.Now(), stolen: stolenTime()}
	go func() {
		for {
			time.Sleep(sampling)
			m.sample(time.Now(), stolenTime())
		}
	}()
	return m
}

// sample ends the current sample and begins the next one.
func (m *machine) sample(now time.Time, stolen time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := stolen - m.stolen
	// The monotonic clock may stand still while a machine is suspended, the other does not.
	if over := now.Round(0).Sub(m.from.Round(0)) - sampling; over >= late {
		lost = max(lost, over)
	}
	if lost > 0 {
		m.samples = append(m.samples, sample{m.from, now, lost})
	}
	m.from, m.stolen = now, stolen
}

// lost returns the largest loss of a sample between the two times.
func (m *machine) lost(from, to time.Time) time.Duration {
	m.sample(time.Now(), stolenTime())
	m.mu.Lock()
	defer m.mu.Unlock()
	var most time.Duration
	for _, s := range m.samples {
		if s.from.Before(to) && from.Before(s.to) {
			most = max(most, s.lost)
		}
	}
	return most
}

// waitCalm waits until the machine works for a second without a loss, but not longer than
// 5 min. An idle machine would tell nothing: what it does not use cannot be taken from it.
func (m *machine) waitCalm() {
	const work, rest, longest = time.Second, 20 * time.Second, 5 * time.Minute
	for end := time.Now().Add(longest); time.Now().Before(end); {
		begin := time.Now()
		occupy(work)
		if m.lost(begin, time.Now()) < excused {
			return
		}
		time.Sleep(rest)
	}
}

// occupy keeps all CPUs busy.
func occupy(lasts time.Duration) {
	var cpus sync.WaitGroup
	for range runtime.NumCPU() {
		cpus.Go(func() {
			for end := time.Now().Add(lasts); time.Now().Before(end); {
			}
		})
	}
	cpus.Wait()
}

// stolenTime returns the time that the host has taken from each CPU, on average. It
// returns 0 where the system does not count it.
func stolenTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseStolen(stat, runtime.NumCPU())
}

// parseStolen reads the eighth number of the line "cpu": hundredths of a second, all CPUs
// together (man 5 proc_stat).
func parseStolen(stat []byte, cpus int) time.Duration {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0
	}
	ticks, err := strconv.ParseInt(string(fields[8]), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ticks) * (time.Second / 100) / time.Duration(cpus)
}
