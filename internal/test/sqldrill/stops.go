package sqldrill

import (
	"bufio"
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// Stops stop holders in the middle of their transactions, in each way that a process can stop.
type Stops struct {
	Number int           // with a guard
	For    time.Duration // with a guard, instead of Number; zero means Number
	Server string
	Admin  *sql.DB
	Texts  Texts
	Kill   func() error // ends a holder's connection in the server, if any

	// Start returns the command for a process that calls Bank.Hold, with connections to an address.
	Start func(addr, account string, way Way, guarded bool) *exec.Cmd
}

// Run checks a way. With a guard, no stale transaction should be committed. Without a guard, some
// should be, to show that the stops are long enough. This is checked only with read committed: in
// the other levels a database itself refuses nearly all stale changes.
func (s Stops) Run(t *testing.T, way Way) {
	t.Run("guarded", func(t *testing.T) {
		var end time.Time
		if s.For > 0 {
			end = time.Now().Add(s.For)
		}
		if all := s.staleOf(t, way, "guarded", s.Number, end); len(all) > 0 {
			t.Errorf("stale transactions were committed: %v", all)
		}
	})
	if way.Level != sql.LevelReadCommitted {
		return
	}
	t.Run("unguarded", func(t *testing.T) {
		const few, rounds = 20, 10
		for round := range rounds {
			if len(s.staleOf(t, way, fmt.Sprint("unguarded", round), few, time.Time{})) > 0 {
				return
			}
		}
		t.Error("no transaction was stale: the stops prove nothing")
	})
}

// staleOf returns an error for each stale change committed during a number of stops, or until end
// unless it is zero.
func (s Stops) staleOf(t *testing.T, way Way, kind string, number int, end time.Time) (all []error) {
	t.Helper()
	var accounts []string
	for i := range 6 {
		accounts = append(accounts, fmt.Sprint(way.Name, " ", kind, i))
		mustExec(t, s.Admin, s.Texts.Add, accounts[i])
	}
	d := &stopDrill{t: t, number: int64(number), end: end, kill: s.Kill}
	d.runAll(s.Server, accounts, func(addr, account string) *exec.Cmd { return s.Start(addr, account, way, kind == "guarded") })
	for _, account := range accounts {
		all = append(all, stale(changesOf(t, s.Admin, s.Texts.Changes, account))...)
	}
	t.Logf("FIGURE %s, %s: %v, %d stale", way.Name, kind, d, len(all))
	return all
}

func mustExec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// A change is a committed change to an account.
type change struct{ before, fence int64 }

func changesOf(t *testing.T, db *sql.DB, text, account string) (changes []change) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text, account)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var c change
		if err := rows.Scan(&c.before, &c.fence); err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return changes
}

// stale returns an error for each change that did not follow the previous change: its holder read
// an older value, or had a smaller fence.
func stale(changes []change) (errs []error) {
	last := change{before: -1}
	for i, c := range changes {
		switch {
		case c.before != last.before+1:
			errs = append(errs, fmt.Errorf("change %d had read %d after %d, with the fence %d after %d", i, c.before, last.before, c.fence, last.fence))
		case c.fence <= last.fence:
			errs = append(errs, fmt.Errorf("change %d has fence %d after %d", i, c.fence, last.fence))
		}
		last = c
	}
	return errs
}

// A stopDrill stops many processes, and records the results. It is safe for concurrent use.
type stopDrill struct {
	t      *testing.T
	number int64
	end    time.Time // instead of number, unless it is zero
	kill   func() error

	signals, pauses, partitions, crashes, cuts, kills atomic.Int64
	committed, refused                                atomic.Int64
}

func (d *stopDrill) stops() int64 {
	return d.signals.Load() + d.pauses.Load() + d.partitions.Load() + d.crashes.Load() + d.cuts.Load() + d.kills.Load()
}

// isDone reports whether there were enough stops.
func (d *stopDrill) isDone() bool {
	if d.end.IsZero() {
		return d.stops() >= d.number
	}
	return time.Now().After(d.end)
}

func (d *stopDrill) String() string {
	return fmt.Sprintf("%d stops (%d by SIGSTOP, %d pauses, %d partitions, %d by SIGKILL, %d cut connections, %d killed ones): %d transactions committed, %d refused",
		d.stops(), d.signals.Load(), d.pauses.Load(), d.partitions.Load(), d.crashes.Load(), d.cuts.Load(), d.kills.Load(), d.committed.Load(), d.refused.Load())
}

// runAll runs two processes for each account until there were enough stops.
func (d *stopDrill) runAll(server string, accounts []string, start func(addr, account string) *exec.Cmd) {
	var group sync.WaitGroup
	for _, account := range accounts {
		for range 2 {
			proxy := redistest.NewProxy(d.t, server)
			group.Go(func() {
				for d.run(start(proxy.Addr(), account), proxy) { // the next process replaces the killed process
				}
			})
		}
	}
	group.Wait()
}

// run starts a process and stops it at each line. It reports whether it killed the process.
func (d *stopDrill) run(cmd *exec.Cmd, proxy *redistest.Proxy) (killed bool) {
	in, err := cmd.StdinPipe()
	if err != nil {
		d.t.Error(err)
		return false
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Error(err)
		return false
	}
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	if err := cmd.Start(); err != nil {
		d.t.Error(err)
		return false
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case "stop":
			if d.isDone() {
				_ = in.Close() // the process ends
				continue
			}
			killed = d.stop(cmd.Process, proxy, in)
		case "committed":
			d.committed.Add(1)
		case "refused":
			d.refused.Add(1)
		}
	}
	if err := cmd.Wait(); err != nil && !killed {
		d.t.Errorf("a holder: %v: %s", err, &trouble)
	}
	return killed
}

// stop stops a process, and reports whether it killed the process.
func (d *stopDrill) stop(p *os.Process, proxy *redistest.Proxy, in io.Writer) (killed bool) {
	reply := func(text string) { _, _ = io.WriteString(in, text+"\n") } // Wait reports an ended process
	switch rand.IntN(12) {
	default:
		d.signals.Add(1)
		d.try(p.Signal(syscall.SIGSTOP))
		time.Sleep(stopFor)
		reply("go")
		d.try(p.Signal(syscall.SIGCONT))
	case 3, 4, 5:
		d.pauses.Add(1)
		reply("pause")
	case 6, 7, 8:
		d.partitions.Add(1)
		proxy.Freeze()
		reply("go")
		time.Sleep(stopFor)
		proxy.Thaw()
	case 9:
		d.crashes.Add(1)
		d.try(p.Kill())
		return true
	case 10:
		d.cuts.Add(1)
		proxy.Reset()
		reply("pause")
	case 11:
		d.kills.Add(1)
		d.try(d.kill())
		reply("pause")
	}
	return false
}

func (d *stopDrill) try(err error) {
	if err != nil {
		d.t.Error(err)
	}
}
