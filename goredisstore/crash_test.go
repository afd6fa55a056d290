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

// Tests with processes that die. A child is this test binary once more, with its
// childConfig in the environment. It reads commands from its standard input and reports
// in lines on its standard output, with CLOCK_MONOTONIC in nanoseconds: one clock
// childConfig what all processes did.

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
		defer close(commands) // the parent has gone, so the child goes
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

// childConfig are what a child is told at its start.
type childConfig struct {
	Role    string
	Addr    string // the server's, unless there is a proxy in between
	Control string // the server's
	Cluster bool   // it is a node of a cluster
	TTL     time.Duration
	Workers int           // of a crowd or crew
	Work    time.Duration // in the lock, of a crowd
	For     time.Duration // how long the workers go on, or zero: once each
	Who     string        // the name of a crew
	Names   []string      // that a crew contends for
}

// mono reads the clock that all processes of a machine share.
func mono() time.Duration {
	var ts syscall.Timespec
	const monotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

var stdout sync.Mutex

// say reports one line.
func emit(format string, args ...any) {
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// enlist returns a child's client, which has talked to the server and listens.
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
		time.Sleep(time.Millisecond) // between two looks
	}
	emit("broken %v", err)
	os.Exit(1)
	return nil
}

// hand does one thing at a time, as it is told.
func mutexChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{
		Waiting: func(w dibs.Waiting) { emit("waits %d", w.Position) },
		Renewed: func(dibs.Renewed) { emit("renewed %d", mono()) },
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

// write is a holder that asks the lease before each write, until that says no.
func writeUntilLost(l *dibs.Lease, ttl time.Duration) {
	ctx := l.Context()
	for last := mono(); ; time.Sleep(time.Millisecond) { // work
		look := mono()
		err := l.Err()
		at := mono()
		if err == nil {
			emit("wrote %d %d", look, at)
			last = at
			continue
		}
		<-ctx.Done()
		done := mono()
		var lost *dibs.LostError
		gap := look-last > ttl/2
		emit("lost %d %d %d %t %t", look, at, done, gap, errors.As(err, &lost) && errors.Is(context.Cause(ctx), dibs.ErrLost))
		return
	}
}

// A child is a process that a test has started.
type child struct {
	t     *testing.T
	who   string // of a crew
	cmd   *exec.Cmd
	in    interface{ Write([]byte) (int, error) }
	lines chan string
	gone  chan struct{}
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
	c := &child{t: b.t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1<<16), gone: make(chan struct{})}
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
		defer close(c.gone)
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

// kill ends the process as a crash would, and returns once it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for range c.lines { // so that the reader sees the end
	}
	<-c.gone
}

// stop lets the process stand still, and returns once it does.
func (c *child) stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	for end := time.Now().Add(generous); ; time.Sleep(100 * time.Microsecond) { // between two looks
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil || time.Now().After(end) {
			c.t.Fatalf("it does not stop: %v", err)
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

// expect returns the fields after a word of the next report that begins with it.
func (c *child) expect(word string) []string {
	c.t.Helper()
	patience := time.After(2 * generous)
	for {
		select {
		case line, ok := <-c.lines:
			fields := strings.Split(line, " ")
			if !ok || fields[0] == "broken" {
				c.t.Fatalf("waiting for %q, the child ended with %q", word, line)
			}
			if fields[0] == word {
				return fields[1:]
			}
		case <-patience:
			c.t.Fatalf("the child does not say %q", word)
		}
	}
}

// A heldReport is a child's report that it holds.
type heldReport struct {
	at    time.Duration
	fence uint64
	late  time.Duration // what its control saw
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

// A holder that is killed costs the others no more than its TTL.
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

// A waiter that is killed at the head of the queue costs those behind it nothing.
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
		freed := mono()
		b.unlock(l)
		at, who := freed, "waiter killed"
		for _, w := range waiters[2:] {
			next := w.awaitHeld()
			within(t, who+": next entry after release", next.at-at, 50*time.Millisecond, next.late)
			w.send("unlock")
			at, who = number(t, w.expect("unlocked")[0]), "and the one behind it"
			w.kill()
		}
		// With nobody else in line the last release had to go to one of the dead.
		b.begin()
		start := time.Now()
		l = b.lock(locks, job)
		b.within("only the dead in line: newcomer enters after", time.Since(start), driver.WaiterTTL+20*time.Millisecond)
		b.unlock(l)
		b.eventually("the dead are forgotten", func() bool { return len(b.remainingKeys()) == 0 })
	}
}

// Waiters that stand still when their turn comes cost the others one claim TTL,
// and not one each, however long the TTL is.
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
	still, next := waiters[:3], waiters[3]
	for _, w := range still {
		w.stop()
	}
	freed := mono()
	b.unlock(l)
	first := next.awaitHeld()
	within(t, "3 stopped waiters: next entry after release", first.at-freed, driver.WaiterTTL+20*time.Millisecond, first.late)
	for _, w := range still {
		w.cont()
	}
	// They find out, and wait again.
	b.eventually("they queue again", func() bool {
		return b.call("ZCARD", "{"+key+"}:dibs:queue") == int64(len(still))
	})
	if state, err := locks.Inspect(t.Context(), job); err != nil || len(state.Holders) != 1 || state.Fence != first.fence {
		t.Errorf("%+v, %v: want the one that entered with fence %d", state, err, first.fence)
	}
	next.send("unlock")
	next.expect("unlocked")
	fence := first.fence
	for served := 0; served < len(still); { // in whichever order they came back
		for _, w := range still {
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

// A holder that stood still learns in its first instruction that the lease is
// lost, before it writes.
func TestHolderIsStopped(t *testing.T) {
	t.Parallel()
	for range 2 {
		b := setUp(t)
		rival := b.newClient(b.server.Addr())
		for tries := 0; !b.holderIsStopped(rival); tries++ {
			if tries == 3 {
				t.Fatal("it was stopped between its look and its write, again and again")
			}
		}
	}
}

// holderIsStopped does one round. It returns false if the holder was stopped in
// the microsecond between its look at the lease and its write, which no lease can
// help: only the fence does.
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
	time.Sleep(2 * ttl) // so long it stands still
	var entered entry
	select {
	case entered = <-waiter:
	default:
		t.Fatal("the rival has not entered meanwhile")
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
			t.Fatal("the holder says nothing")
		}
		f := strings.Split(line, " ")
		if f[0] == "wrote" {
			writes++
			look, at := number(t, f[1]), number(t, f[2])
			if at < woken {
				continue
			}
			if look < woken {
				b.unlock(entered.lease)
				return false
			}
			past++
		}
		if f[0] != "lost" {
			continue
		}
		look, told, done := number(t, f[1]), number(t, f[2]), number(t, f[3])
		if look < woken || f[4] != "true" || f[5] != "true" {
			t.Errorf("%q: want it told after the gap, by a LostError and the context's cause", line)
		}
		late := b.late()
		within(t, "holder stopped: Err after its first instruction", told-look, 5*time.Millisecond, late)
		within(t, "holder stopped: context ended", done-look, 5*time.Millisecond, late)
		// When a process runs again after SIGCONT is the machine's business.
		t.Logf("FIGURE holder stopped: Err %v after SIGCONT (no limit)", round(told-woken))
		break
	}
	t.Logf("FIGURE holder stopped: %d writes, %d past the end (limit 0)", writes, past)
	if past != 0 {
		t.Errorf("%d writes after it was lost", past)
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
