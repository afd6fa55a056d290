//go:build linux

package goredisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/redis/go-redis/v9"
)

// Tests with dying processes. A child is this test binary, started again with its childConfig in
// the environment. It reads commands from its standard input, and writes reports to its standard
// output, each on its own line. Times in reports are CLOCK_MONOTONIC in nanoseconds, which all
// processes share.

const childEnv = "DIBS_TEST_CHILD"

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var o childConfig
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	commands := make(chan string)
	go func() {
		defer close(commands) // when the parent ends, so does the child
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			commands <- in.Text()
		}
	}()
	switch o.Role {
	case "mutex":
		mutexChild(o, commands)
	case "load":
		loadChild(o, commands)
	case "leases":
		leasesChild(o, commands)
	case "multi":
		multiChild(o, commands)
	case "candidate":
		candidateChild(o, commands)
	}
	os.Exit(0)
}

// childConfig is a child's configuration.
type childConfig struct {
	Role    string
	Addr    string // for the server, or for a proxy before it
	Control string // for the server
	Cluster bool   // the server is a cluster node
	TTL     time.Duration
	Workers int           // for load and multi
	Work    time.Duration // for load: while holding the lock
	For     time.Duration // for load: how long workers repeat; zero means once each
	Name    string        // for multi and candidate: the process name
	Names   []string      // for multi: the names to lock
}

// mono returns CLOCK_MONOTONIC, which all processes on a machine share.
func mono() time.Duration {
	var ts syscall.Timespec
	const monotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

var stdout sync.Mutex

// emit writes a report.
func emit(format string, args ...any) {
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// openInChild returns a connected and subscribed client.
func openInChild(o childConfig, hooks dibs.Hooks) *dibs.Client {
	rdb := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: o.Addr}))
	if o.Cluster {
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}})
	}
	locks := dibs.New(goredisstore.New(rdb), dibs.TTL(o.TTL), dibs.Observe(hooks), patient())
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	token, err := warm(ctx, locks)
	for err == nil {
		var n map[string]int64
		if n, err = rdb.PubSubNumSub(ctx, channelOf(token)).Result(); n[channelOf(token)] == 1 {
			return locks
		}
		time.Sleep(time.Millisecond) // between polls
	}
	emit("broken %v", err)
	os.Exit(1)
	return nil
}

// mutexChild executes "lock", "write" and "unlock" on a mutex. It reports "waits POSITION", "held
// TIME FENCE LATE", "renewed TIME", writeUntilLost's reports, and "unlocked TIME LOST".
func mutexChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{
		Queued:  func(_ context.Context, w dibs.Queued) { emit("waits %d", w.Position) },
		Renewed: func(context.Context, dibs.Renewed) { emit("renewed %d", mono()) },
	})
	machine := watchMachine(context.Background(), o.Addr)
	leases := make(chan *dibs.Lease, 1)
	emit("ready")
	for command := range commands {
		switch command {
		case "lock":
			machine.begin()
			go func() {
				l, err := locks.Mutex(job).Lock(context.Background())
				at := mono()
				if err != nil {
					emit("broken %v", err)
					return
				}
				leases <- l
				emit("held %d %d %d", at, l.Fence(), machine.late())
			}()
		case "write":
			l := <-leases
			writeUntilLost(l, o.TTL)
			leases <- l
		case "unlock":
			l := <-leases
			err := l.Unlock()
			emit("unlocked %d %t", mono(), errors.Is(err, dibs.ErrLost))
		}
	}
}

// writeUntilLost checks the lease before each write, until it is lost. It reports "wrote CHECKED
// TIME" and "lost CHECKED ERR DONE GAP CAUSE". The numbers are the times before and after the check
// and at the end of the context. GAP is whether there was a gap before the check, and CAUSE whether
// error and context have the right cause.
func writeUntilLost(l *dibs.Lease, ttl time.Duration) {
	ctx := l.Context()
	for last := mono(); ; time.Sleep(time.Millisecond) { // work
		checked := mono()
		err := l.Err()
		at := mono()
		if err == nil {
			emit("wrote %d %d", checked, at)
			last = at
			continue
		}
		<-ctx.Done()
		done := mono()
		var lost *dibs.LostError
		gap := checked-last > ttl/2
		emit("lost %d %d %d %t %t", checked, at, done, gap, errors.As(err, &lost) && errors.Is(context.Cause(ctx), dibs.ErrLost))
		return
	}
}

// child is a process started by a test.
type child struct {
	t     *testing.T
	name  string // its name, for multi and candidate
	cmd   *exec.Cmd
	in    interface{ Write([]byte) (int, error) }
	lines chan string
	ended chan struct{}
}

// spawn starts a child and waits until it is ready.
func (b *fixture) spawn(o childConfig) *child {
	b.t.Helper()
	o.Control = b.server.Addr()
	if o.Addr == "" {
		o.Addr = o.Control
	}
	text, err := json.Marshal(o)
	if err != nil {
		b.t.Fatal(err)
	}
	c := &child{t: b.t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1<<16), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			c.lines <- strings.TrimSpace(line)
		}
		_ = c.cmd.Wait() // it was killed
	}()
	b.t.Cleanup(c.kill)
	c.expect("ready")
	return c
}

// kill kills the process with SIGKILL, and returns when it is dead.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for range c.lines { // so that the reader reaches the end
	}
	<-c.ended
}

// stop stops the process with SIGSTOP, and returns when it is stopped.
func (c *child) stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	for end := time.Now().Add(generous); ; time.Sleep(100 * time.Microsecond) { // between polls
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil || time.Now().After(end) {
			c.t.Fatalf("the process does not stop: %v", err)
		}
		if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "T") {
			return
		}
	}
}

func (c *child) cont() { c.signal(syscall.SIGCONT) }

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) send(command string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		c.t.Fatal(err)
	}
}

// expect returns the fields after word in the next report that begins with word.
func (c *child) expect(word string) []string {
	c.t.Helper()
	patience := time.After(2 * generous)
	for {
		select {
		case line, ok := <-c.lines:
			fields := strings.Split(line, " ")
			if !ok || fields[0] == "broken" {
				c.t.Fatalf("waiting for %q: the child ended with %q", word, line)
			}
			if fields[0] == word {
				return fields[1:]
			}
		case <-patience:
			c.t.Fatalf("timed out waiting for the report %q of the child", word)
		}
	}
}

// heldReport is a child's report that it holds a lock.
type heldReport struct {
	at    time.Duration
	fence uint64
	late  time.Duration // measured by the child's control
}

func (c *child) awaitHeld() heldReport {
	c.t.Helper()
	f := c.expect("held")
	return heldReport{at: number(c.t, f[0]), fence: uint64(number(c.t, f[1])), late: number(c.t, f[2])}
}

func number(t *testing.T, text string) time.Duration {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n)
}

// A killed holder delays the others by no more than its TTL.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	for _, when := range []struct {
		name string
		wait func(holder *child)
	}{
		{"at once", func(*child) {}},
		{"after a renewal", func(holder *child) { holder.expect("renewed") }},
		{"between two renewals", func(holder *child) { holder.expect("renewed"); time.Sleep(ttl / 6) }}, // work
	} {
		t.Run(when.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			for range 2 {
				holder, waiter := b.spawn(childConfig{Role: "mutex", TTL: ttl}), b.spawn(childConfig{Role: "mutex", TTL: ttl})
				holder.send("lock")
				first := holder.awaitHeld()
				waiter.send("lock")
				waiter.expect("waits")
				when.wait(holder)
				killed := mono()
				holder.kill()
				next := waiter.awaitHeld()
				within(t, "holder killed "+when.name+": next entry", next.at-killed, ttl+20*time.Millisecond, next.late)
				if next.fence <= first.fence {
					t.Errorf("fence %d after %d", next.fence, first.fence)
				}
				waiter.send("unlock")
				waiter.expect("unlocked")
				b.wantNoKeys()
				waiter.kill()
			}
		})
	}
}

// A waiter killed at the head of the queue does not delay the waiters behind it.
func TestWaiterIsKilled(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks := b.newClient(b.server.Addr())
	for range 3 {
		l := b.lock(locks, job)
		var waiters []*child
		for range 4 {
			w := b.spawn(childConfig{Role: "mutex", TTL: ttl})
			w.send("lock")
			w.expect("waits")
			waiters = append(waiters, w)
		}
		waiters[0].kill()
		waiters[1].kill()
		released := mono()
		b.unlock(l)
		at, what := released, "waiter killed"
		for _, w := range waiters[2:] {
			next := w.awaitHeld()
			within(t, what+": next entry after release", next.at-at, 50*time.Millisecond, next.late)
			w.send("unlock")
			at, what = number(t, w.expect("unlocked")[0]), "and the waiter behind it"
			w.kill()
		}
		// Without another waiter, the last release had to grant to a dead waiter.
		b.begin()
		start := time.Now()
		l = b.lock(locks, job)
		b.within("only dead waiters: another caller enters after", time.Since(start), driver.WaiterTTL+20*time.Millisecond)
		b.unlock(l)
		b.eventually("the dead waiters are removed", func() bool { return len(b.remainingKeys()) == 0 })
	}
}

// Waiters stopped when their turn comes should delay the others by one waiter TTL altogether, not
// by a TTL each, however long the lease TTL is.
func TestWaiterIsStopped(t *testing.T) {
	t.Parallel()
	const long = time.Minute
	b := setUp(t)
	locks := b.newClient(b.server.Addr(), dibs.TTL(long))
	l := b.lock(locks, job)
	var waiters []*child
	for range 4 {
		w := b.spawn(childConfig{Role: "mutex", TTL: long})
		w.send("lock")
		w.expect("waits")
		waiters = append(waiters, w)
	}
	stopped, next := waiters[:3], waiters[3]
	for _, w := range stopped {
		w.stop()
	}
	released := mono()
	b.unlock(l)
	first := next.awaitHeld()
	within(t, "3 stopped waiters: next entry after release", first.at-released, driver.WaiterTTL+20*time.Millisecond, first.late)
	for _, w := range stopped {
		w.cont()
	}
	// The stopped waiters notice that they lost their turn, and wait again.
	b.eventually("they are in the queue again", func() bool {
		return b.call("ZCARD", "{"+key+"}:dibs:queue") == int64(len(stopped))
	})
	if state, err := locks.Inspect(t.Context(), job); err != nil || len(state.Holders) != 1 || state.Fence != first.fence {
		t.Errorf("%+v, %v: want the holder with fence %d", state, err, first.fence)
	}
	next.send("unlock")
	next.expect("unlocked")
	fence := first.fence
	for served := 0; served < len(stopped); { // in any order
		for _, w := range stopped {
			select {
			case line := <-w.lines:
				f := strings.Split(line, " ")
				if f[0] != "held" {
					continue
				}
				if next := uint64(number(t, f[2])); next <= fence {
					t.Errorf("fence %d after %d", next, fence)
				} else {
					fence = next
				}
				w.send("unlock")
				w.expect("unlocked")
				served++
			case <-time.After(time.Millisecond):
			}
		}
	}
	b.wantNoKeys()
}

// A stopped holder must see the loss in its first check after it continues, before it writes.
func TestHolderIsStopped(t *testing.T) {
	t.Parallel()
	for range 2 {
		b := setUp(t)
		rival := b.newClient(b.server.Addr())
		for tries := 0; !b.holderIsStopped(rival); tries++ {
			if tries == 3 {
				t.Fatal("the holder was stopped between its check and its write in 4 tries")
			}
		}
	}
}

// holderIsStopped runs one round. It returns false if the holder was stopped in the microsecond
// between its check and its write. No lease prevents this; only a fence can.
func (b *fixture) holderIsStopped(rival *dibs.Client) bool {
	t := b.t
	t.Helper()
	holder := b.spawn(childConfig{Role: "mutex", TTL: ttl})
	defer holder.kill()
	holder.send("lock")
	first := holder.awaitHeld()
	waiter := b.enqueue(rival, nil)
	holder.send("write")
	holder.expect("renewed")
	holder.expect("wrote")
	holder.stop()
	time.Sleep(2 * ttl) // the holder is stopped
	var entered entry
	select {
	case entered = <-waiter:
	default:
		t.Fatal("the rival has not entered in the meantime")
	}
	if entered.err != nil || entered.lease.Fence() <= first.fence {
		t.Fatalf("the rival: %+v", entered)
	}
	b.begin()
	woken := mono()
	holder.cont()
	writes, past := 0, 0
	for {
		var line string
		select {
		case line = <-holder.lines:
		case <-time.After(generous):
			t.Fatal("timed out waiting for a report of the holder")
		}
		f := strings.Split(line, " ")
		if f[0] == "wrote" {
			writes++
			checked, at := number(t, f[1]), number(t, f[2])
			if at < woken {
				continue
			}
			if checked < woken {
				b.unlock(entered.lease)
				return false
			}
			past++
		}
		if f[0] != "lost" {
			continue
		}
		checked, noticed, done := number(t, f[1]), number(t, f[2]), number(t, f[3])
		if checked < woken || f[4] != "true" || f[5] != "true" {
			t.Errorf("%q: want the loss noticed after the gap, with a LostError and as the context's cause", line)
		}
		late := b.late()
		within(t, "holder stopped: Err after its first instruction", noticed-checked, 5*time.Millisecond, late)
		within(t, "holder stopped: context ended", done-checked, 5*time.Millisecond, late)
		// How soon a process runs after SIGCONT depends on the machine alone.
		t.Logf("FIGURE holder stopped: Err %v after SIGCONT (no limit)", round(noticed-woken))
		break
	}
	t.Logf("FIGURE holder stopped: %d writes, %d after the loss (limit 0)", writes, past)
	if past != 0 {
		t.Errorf("%d writes after the loss", past)
	}
	holder.send("unlock")
	if f := holder.expect("unlocked"); f[1] != "true" {
		t.Errorf("unlock of the lost lease: %q, want ErrLost", f)
	}
	if err := entered.lease.Err(); err != nil {
		t.Errorf("the rival: %v", err)
	}
	b.unlock(entered.lease)
	return true
}
