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

	"github.com/dibslock/dibs/internal/redistest"
)

// StoppedHolders stops holders in the middle of their transactions, in each of the ways that a
// process stops. With a guard, no stale transaction may be committed; without one, some are,
// so the stops are long enough. start returns the command of a process that calls Bank.Hold, with
// connections to an address. number is that of the stops with a guard; there are half as many without,
// at most 100.
func StoppedHolders(t *testing.T, number int, server string, admin *sql.DB, texts Texts, start func(addr, account string, guarded bool) *exec.Cmd) {
	t.Helper()
	for _, text := range texts.Create {
		mustExec(t, admin, text)
	}
	for _, c := range []struct {
		kind    string
		stops   int
		guarded bool
	}{{"guarded", number, true}, {"unguarded", min(number/2, 100), false}} {
		t.Run(c.kind, func(t *testing.T) {
			var accounts []string
			for i := range 6 {
				accounts = append(accounts, fmt.Sprint(c.kind, i))
				mustExec(t, admin, texts.Add, accounts[i])
			}
			d := &stopDrill{t: t, number: int64(c.stops)}
			d.runAll(server, accounts, func(addr, account string) *exec.Cmd { return start(addr, account, c.guarded) })
			var all []error
			for _, account := range accounts {
				all = append(all, stale(changesOf(t, admin, texts.Changes, account))...)
			}
			t.Logf("%v, %d stale", d, len(all))
			switch {
			case c.guarded && len(all) > 0:
				t.Errorf("stale transactions were committed: %v", all)
			case !c.guarded && len(all) == 0:
				t.Error("no transaction was stale: the stops prove nothing")
			}
		})
	}
}

func mustExec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// A change is a committed change of an account.
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

// stale returns an error for each change that did not follow the one before it: its holder had read an
// older value, or had a smaller fence.
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

// A stopDrill is the stops of many processes, and what happened. It is safe for concurrent use.
type stopDrill struct {
	t      *testing.T
	number int64

	signals, pauses, partitions atomic.Int64
	committed, refused          atomic.Int64
}

func (d *stopDrill) stops() int64 { return d.signals.Load() + d.pauses.Load() + d.partitions.Load() }

func (d *stopDrill) String() string {
	return fmt.Sprintf("%d stops (%d by SIGSTOP, %d pauses, %d partitions): %d transactions committed, %d refused",
		d.stops(), d.signals.Load(), d.pauses.Load(), d.partitions.Load(), d.committed.Load(), d.refused.Load())
}

// runAll runs two processes for each account until there were enough stops.
func (d *stopDrill) runAll(server string, accounts []string, start func(addr, account string) *exec.Cmd) {
	var group sync.WaitGroup
	for _, account := range accounts {
		for range 2 {
			proxy := redistest.NewProxy(d.t, server)
			group.Go(func() { d.run(start(proxy.Addr(), account), proxy) })
		}
	}
	group.Wait()
}

// run starts a process and stops it at each of its lines.
func (d *stopDrill) run(cmd *exec.Cmd, proxy *redistest.Proxy) {
	in, err := cmd.StdinPipe()
	if err != nil {
		d.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Error(err)
		return
	}
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	if err := cmd.Start(); err != nil {
		d.t.Error(err)
		return
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case "stop":
			if d.stops() >= d.number {
				_ = in.Close() // the process ends
				continue
			}
			d.stop(cmd.Process, proxy, in)
		case "committed":
			d.committed.Add(1)
		case "refused":
			d.refused.Add(1)
		}
	}
	if err := cmd.Wait(); err != nil {
		d.t.Errorf("a holder: %v: %s", err, &trouble)
	}
}

func (d *stopDrill) stop(p *os.Process, proxy *redistest.Proxy, in io.Writer) {
	reply := func(text string) { _, _ = io.WriteString(in, text+"\n") } // a process that has ended is reported by Wait
	switch rand.IntN(3) {
	case 0:
		d.signals.Add(1)
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			d.t.Error(err)
		}
		time.Sleep(stopFor)
		reply("go")
		if err := p.Signal(syscall.SIGCONT); err != nil {
			d.t.Error(err)
		}
	case 1:
		d.pauses.Add(1)
		reply("pause")
	default:
		d.partitions.Add(1)
		proxy.Freeze()
		reply("go")
		time.Sleep(stopFor)
		proxy.Thaw()
	}
}
