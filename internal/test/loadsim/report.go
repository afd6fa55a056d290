package loadsim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A Step is the state at a time in a run. It counts requests and their work since the run began.
type Step struct {
	At        time.Duration
	Acquires  int // executed requests
	Releases  int
	Extends   int
	Others    int           // cancels, subscriptions and their checks
	Renewed   int           // leases in the extensions
	Late      int           // of these, requests whose callers no longer waited
	Work      time.Duration // the processor's work
	LateWork  time.Duration // for callers that no longer waited
	Connects  int           // opened connections
	Refused   int           // acquires, releases and extensions refused because the server was down
	Backlog   time.Duration // the waiting work
	Conns     int           // open connections, as the server counts them
	Held      int           // leases that their holders consider held
	Lost      int           // leases ended before the end of the run
	Peak      Peak          // in this step
	Abandoned int           // requests whose callers no longer waited
}

// A Peak is the maximum at any instant in a step.
type Peak struct {
	Requests int // waiting at the server
	Conns    int
}

// count counts an executed request.
func (s *Step) count(r *request) {
	switch r.kind {
	case acquires:
		s.Acquires++
	case releases:
		s.Releases++
	case extends:
		s.Extends++
	default:
		s.Others++
	}
	s.Renewed += r.leases
	s.Work += r.work
	if r.left {
		s.Late += r.leases
		s.LateWork += r.work
		s.Abandoned++
	}
}

// Requests returns how many were executed.
func (s Step) Requests() int { return s.Acquires + s.Releases + s.Extends + s.Others }

// A Report is a run's result.
type Report struct {
	Leases   int
	Acquired int
	Steps    []Step
	Lost     map[string]int // by reason
	Granted  int            // served waiters
	// Detected contains a list for each data loss, with a duration for each client: from the
	// server's return until the client has lost its last lease. It is 0 for a client without leases.
	Detected [][]time.Duration
}

// LostInAll returns how many leases were lost.
func (r Report) LostInAll() (n int) {
	for _, m := range r.Lost {
		n += m
	}
	return n
}

// at returns the last step until a time.
func (r Report) at(at time.Duration) Step {
	i, found := slices.BinarySearchFunc(r.Steps, at, func(s Step, t time.Duration) int { return int(s.At - t) })
	switch {
	case found:
		return r.Steps[i]
	case i == 0:
		return Step{}
	}
	return r.Steps[i-1]
}

// Between returns the work between two times, with the state and the peaks until the second.
func (r Report) Between(from, to time.Duration) Step {
	a, b := r.at(from), r.at(to)
	b.Acquires -= a.Acquires
	b.Releases -= a.Releases
	b.Extends -= a.Extends
	b.Others -= a.Others
	b.Renewed -= a.Renewed
	b.Late -= a.Late
	b.Work -= a.Work
	b.LateWork -= a.LateWork
	b.Connects -= a.Connects
	b.Refused -= a.Refused
	b.Abandoned -= a.Abandoned
	b.Lost -= a.Lost
	b.Peak = Peak{}
	for _, s := range r.Steps {
		if s.At > from && s.At <= to {
			b.Peak.Requests, b.Peak.Conns = max(b.Peak.Requests, s.Peak.Requests), max(b.Peak.Conns, s.Peak.Conns)
		}
	}
	return b
}

// String summarises the run.
func (r Report) String() string {
	var b strings.Builder
	all := r.Between(-1, time.Hour)
	fmt.Fprintf(&b, "leases: %d acquired of %d, %d lost", r.Acquired, r.Leases, r.LostInAll())
	for why, n := range r.Lost {
		fmt.Fprintf(&b, " (%s %d)", why, n)
	}
	fmt.Fprintf(&b, "; requests: %d, %d of them for nobody, at most %d at once", all.Requests(), all.Abandoned, all.Peak.Requests)
	fmt.Fprintf(&b, "; renewals: %d, %d of them late", all.Renewed, all.Late)
	fmt.Fprintf(&b, "; processor: %v, %v of it for nobody", all.Work.Round(time.Millisecond), all.LateWork.Round(time.Millisecond))
	fmt.Fprintf(&b, "; connections: %d opened, at most %d", all.Connects, all.Peak.Conns)
	return b.String()
}

// columns is the header of the CSV.
const columns = "ms,acquires,releases,extends,others,renewed,late,work_us,late_work_us,backlog_us,connections,held,lost"

// WriteCSV writes a row for each step: the work done in it, and the state at its end.
func (r Report) WriteCSV(w io.Writer) error {
	lines := []string{columns}
	last := time.Duration(-1)
	for _, s := range r.Steps {
		d := r.Between(last, s.At)
		lines = append(lines, fmt.Sprintf("%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d", s.At.Milliseconds(), d.Acquires, d.Releases, d.Extends, d.Others,
			d.Renewed, d.Late, d.Work.Microseconds(), d.LateWork.Microseconds(), s.Backlog.Microseconds(), s.Conns, s.Held, s.Lost))
		last = s.At
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
