//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// A program is a dibs process run by a test.
type program struct {
	*exec.Cmd
	t      *testing.T
	stdout buffer
	stderr buffer
	ended  chan struct{}
}

// A buffer collects output. It may be read while a program writes to it.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// longTimeout allows for a busy machine. noRaceSleep turns off the race detector's one-second sleep
// at each process's end.
const (
	longTimeout = "DIBS_TIMEOUT=10s"
	noRaceSleep = "GORACE=atexit_sleep_ms=0"
)

// prepare returns a program without starting it. Its environment is minimal, as in cron: only the
// store's URL and PATH.
func prepare(t *testing.T, url string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...), t: t, ended: make(chan struct{})}
	p.Args[0] = "dibs"
	p.Dir = t.TempDir()
	p.Env = []string{"PATH=" + os.Getenv("PATH"), "DIBS_URL=" + url, longTimeout, noRaceSleep}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

func begin(t *testing.T, url string, args ...string) *program {
	t.Helper()
	p := prepare(t, url, args...)
	p.begin()
	return p
}

func (p *program) begin() {
	p.t.Helper()
	p.WaitDelay = 10 * time.Second
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.endWithTest(func() {})
}

// endWithTest kills a started program when the test ends, and then calls then.
func (p *program) endWithTest(then func()) {
	go func() {
		p.Wait()
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		p.Process.Kill()
		<-p.ended
		then()
		if p.t.Failed() {
			p.t.Logf("%v:\n%s%s", p.Args, &p.stdout, &p.stderr)
		}
	})
}

// code waits until the program exits, and returns its exit code as shells do.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testTimeout):
		p.t.Fatalf("%v does not exit", p.Args)
	}
	return supervise.ExitCode(p.ProcessState.Sys().(syscall.WaitStatus))
}

func (p *program) wantCode(want int) {
	p.t.Helper()
	if have := p.code(); have != want {
		p.t.Errorf("%v: exit code %d, want %d\n%s%s", p.Args, have, want, &p.stdout, &p.stderr)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// awaitLine waits for a line on stdout that begins with word, and returns the rest of the line.
func (p *program) awaitLine(word string) (rest string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("line %q of %v, which has printed %s%s", word, p.Args, &p.stdout, &p.stderr), func() bool {
		for line := range strings.Lines(p.stdout.String()) {
			if after, ok := strings.CutPrefix(line, word); ok && strings.HasSuffix(line, "\n") {
				rest = strings.TrimSpace(after)
				return true
			}
		}
		return false
	})
	return rest
}

// A testStore is a store that a test can inspect.
type testStore struct {
	t     *testing.T
	url   string
	store *opened
}

// onEachStore runs a test with a Redis and with a local file.
func onEachStore(t *testing.T, test func(t *testing.T, s *testStore)) {
	t.Helper()
	t.Parallel()
	onEachStoreSerially(t, func(t *testing.T, s *testStore) {
		t.Parallel()
		test(t, s)
	})
}

func onEachStoreSerially(t *testing.T, test func(t *testing.T, s *testStore)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { test(t, openTestStore(t, redistest.Start(t).URL())) })
	t.Run("local", func(t *testing.T) { test(t, openTestStore(t, "local:"+filepath.Join(t.TempDir(), "locks.db"))) })
}

func openTestStore(t *testing.T, url string) *testStore {
	t.Helper()
	flags := storeFlags{urls: []string{url}}
	store, err := flags.open(untilExit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.close() })
	return &testStore{t: t, url: url, store: store}
}

func (s *testStore) URL() string { return s.url }

// state returns the state of a name.
func (s *testStore) state(name string) driver.State {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	state, err := s.store.Inspect(ctx, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *testStore) held(name string) bool { return s.state(name).Holding > 0 }

func (s *testStore) waiting(name string) int { return s.state(name).Waiting }

// alive reports whether a process exists and is not a zombie.
func alive(pid string) bool {
	state := processState(pid)
	return state != "" && state != "Z" && state != "X"
}

// processState returns the kernel's state letter, or "" if there is no such process.
func processState(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	return string(bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])[0])
}

// parentAndChild is a script that starts another process and waits for it.
const parentAndChild = `sleep 1000 & echo "pids $$ $!"; wait`

// stubborn is the same, but ignores termination signals.
const stubborn = `trap '' TERM INT HUP; sleep 1000 & echo "pids $$ $!"; wait; wait`

func (p *program) pids() []string {
	p.t.Helper()
	pids := strings.Fields(p.awaitLine("pids"))
	p.t.Cleanup(func() {
		for _, pid := range pids {
			n, _ := strconv.Atoi(pid)
			if alive(pid) {
				syscall.Kill(n, syscall.SIGKILL)
			}
		}
	})
	return pids
}

func anyAlive(pids []string) bool { return slices.ContainsFunc(pids, alive) }

// If dibs is killed, the command and all its descendants are killed at once, and
// therefore before the lock is free.
func TestDibsIsKilled(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		for name, script := range map[string]string{"polite": parentAndChild, "stubborn": stubborn} {
			p := begin(t, s.URL(), "run", "--ttl", "20s", name, "--", "sh", "-c", script)
			pids := p.pids()
			p.Process.Kill()
			s.wantKilled(name, pids)
		}
	})
}

// wantKilled waits until a killed dibs' command is dead. The lock should not be free before that.
// On a Redis it should be free after its TTL, in a file as soon as all processes are dead.
func (s *testStore) wantKilled(name string, pids []string) {
	s.t.Helper()
	if !strings.HasPrefix(s.url, "local:") {
		eventually(s.t, "all dead", func() bool { return !anyAlive(pids) })
		if !s.held(name) {
			s.t.Error("the lock is free")
		}
		return
	}
	began := time.Now()
	eventually(s.t, "the lock is free", func() bool { return !s.held(name) })
	if anyAlive(pids) {
		s.t.Error("the lock is free and the command is alive")
	}
	s.t.Logf("%s is free after %v", name, time.Since(began))
}

// With a local file, the lock should be held while any process of the command is alive, even if
// dibs and the watchdog were both killed.
func TestCommandOutlivesBoth(t *testing.T) {
	t.Parallel()
	s := openTestStore(t, "local:"+filepath.Join(t.TempDir(), "locks.db"))
	p := begin(t, s.URL(), "run", "--ttl", "1h", "job", "--", "sh", "-c", parentAndChild)
	pids := p.pids()
	watchdog := pidOf(t, watchdogOf(t, p, ""))
	syscall.Kill(watchdog, syscall.SIGSTOP)
	syscall.Kill(watchdog, syscall.SIGKILL)
	p.Process.Kill() // the kernel kills the shell, but not its child
	p.code()
	next := begin(t, s.URL(), "run", "job", "--", "echo", "entered")
	eventually(t, "the next run queues", func() bool { return s.waiting("job") == 1 || !anyAlive(pids) })
	for range 20 {
		entered, lives := next.stdout.String() != "", alive(pids[1])
		if entered && lives {
			t.Fatal("the next run has the lock while a process of the command is alive")
		}
		time.Sleep(20 * time.Millisecond)
	}
	syscall.Kill(pidOf(t, pids[1]), syscall.SIGKILL)
	next.wantCode(0)
}

// With a local file, acquire's lock lasts until its TTL. Other processes can renew and release
// it.
func TestAcquireOutlivesItself(t *testing.T) {
	t.Parallel()
	s := openTestStore(t, "local:"+filepath.Join(t.TempDir(), "locks.db"))
	p := prepare(t, s.URL(), "-c", `held=$(dibs acquire --ttl 1m job) && eval "$held" && dibs renew && dibs run -n job -- true; echo "code $?"; dibs release && dibs run -n job -- echo "entered"`)
	p.Path, p.Args[0] = "/bin/sh", "sh"
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	p.begin()
	if code := p.awaitLine("code"); code != "75" {
		t.Errorf("code %s", code)
	}
	p.awaitLine("entered")
}

// If dibs is killed at any moment, no process of the command should be left.
func TestDibsIsKilledAtAnyMoment(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		marks := t.TempDir()
		for i := range 40 {
			mark := filepath.Join(marks, strconv.Itoa(i))
			p := begin(t, s.URL(), "run", "--ttl", "10s", strconv.Itoa(i), "--", "sh", "-c", `sleep 1000 & echo $$ $! >"$0"; wait`, mark)
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // at any moment
			p.Process.Kill()
			p.code()
			// A shell killed before it wrote its PID is found by its argument.
			eventually(t, "no shell runs", func() bool { return !runsWithArgument(t, mark) })
			pids, _ := os.ReadFile(mark)
			eventually(t, "all dead", func() bool { return !anyAlive(strings.Fields(string(pids))) })
		}
	})
}

// runsWithArgument reports whether a living process has word as an argument.
func runsWithArgument(t *testing.T, word string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if bytes.Contains(text, append([]byte(word), 0)) && alive(strings.Split(file, "/")[2]) {
			return true
		}
	}
	return false
}

// A stopped dibs cannot renew: its command is dead before the next holder acquires the
// lock.
func TestDibsIsStopped(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		p := begin(t, s.URL(), "run", "--ttl", "1s", "job", "--", "sh", "-c", stubborn)
		pids := p.pids()
		s.suspend(p.Cmd)
		next := begin(t, s.URL(), "run", "job", "--", "cat", "/proc/"+pids[0]+"/status", "/proc/"+pids[1]+"/status")
		next.code()
		for line := range strings.Lines(next.stdout.String()) {
			if strings.HasPrefix(line, "State:") && !strings.Contains(line, "zombie") { // its parent is stopped
				t.Errorf("a process of the stopped run has the %s when the next one runs", line)
			}
		}
		p.Process.Signal(syscall.SIGCONT)
		p.wantCode(exitLost)
	})
}

// suspend stops a command with SIGSTOP, but not while it writes to a local file: this would stop
// all processes that use the file.
func (s *testStore) suspend(p *exec.Cmd) {
	s.t.Helper()
	for try := 1; ; try++ {
		p.Process.Signal(syscall.SIGSTOP)
		probe := driver.AcquireRequest{
			Name: "probe", Token: fmt.Sprint("probe:", try), Client: "probe", Seq: uint64(try), TTL: time.Millisecond,
			Weight: 1, Limit: 1, Until: time.Now().Add(200 * time.Millisecond),
		}
		_, err := s.store.Acquire(s.t.Context(), probe)
		if err == nil {
			return
		}
		p.Process.Signal(syscall.SIGCONT)
		if try == 100 {
			s.t.Fatalf("no request succeeds while the command is stopped: %v", err)
		}
	}
}

// If Redis dies, the command is asked to end, and then killed, before the lease expires.
func TestRedisDies(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"polite":   `trap 'echo asked; exit 0' TERM; echo "pids $$"; while :; do sleep 0.02; done`,
		"stubborn": `trap 'echo asked' TERM; echo "pids $$"; while :; do sleep 0.02; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := begin(t, s.URL(), "run", "--ttl", "2s", "--kill-after", "500ms", "job", "--", "sh", "-c", script)
			pids := p.pids()
			s.Kill()
			killed := time.Now()
			machine := drill.WatchMachine(t.Context(), s.Addr())
			eventually(t, "dead", func() bool { return !anyAlive(pids) })
			if took, late := time.Since(killed), machine.Late(); took > 2*time.Second+late {
				t.Errorf("alive for %v, want dead before the TTL of 2s (control %v)", took, late)
			}
			p.wantCode(exitLost)
			if !strings.Contains(p.stdout.String(), "asked") {
				t.Error("the command was not asked to end first")
			}
			if !strings.Contains(p.stderr.String(), "lost") {
				t.Errorf("stderr is %q", &p.stderr)
			}
		})
	}
}

// If an operator deletes the lock, the command is asked to end. dibs exits with 76,
// although the command succeeds.
func TestLockIsDeleted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "3s", "--kill-after", "300ms", "job", "--", "sh", "-c",
		`trap 'exit 0' TERM; echo "pids $$"; while :; do sleep 0.02; done`)
	p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	p.wantCode(exitLost)
}

// With --on-lost warn the command goes on.
func TestOnLostWarn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := filepath.Join(t.TempDir(), "gate")
	p := begin(t, s.URL(), "run", "--ttl", "3s", "--kill-after", "300ms", "--on-lost", "warn", "--json", "job", "--", "sh", "-c",
		`echo "pids $$"; until [ -e "$0" ]; do sleep 0.02; done; exit 5`, gate)
	pids := p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	eventually(t, "the loss is reported", func() bool { return strings.Contains(p.stderr.String(), `"event":"lost"`) })
	if !anyAlive(pids) {
		t.Error("the command was ended")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.wantCode(exitLost)
}

// A loss that is only reported does not end the run time limit.
func TestMaxHoldAfterAReportedLoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "3s", "--kill-after", "300ms", "--on-lost", "warn", "--max-hold", "5s", "--json", "job", "--",
		"sh", "-c", `echo "pids $$"; exec sleep 1000`)
	pids := p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	eventually(t, "the loss is reported", func() bool { return strings.Contains(p.stderr.String(), `"event":"lost"`) })
	p.wantCode(exitMaxHold)
	if anyAlive(pids) {
		t.Error("the command is alive")
	}
}

func TestOnLostSignal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "3s", "--on-lost", "USR1", "job", "--", "sh", "-c",
		`trap 'echo signalled; exit 0' USR1; echo "pids $$"; while :; do sleep 0.02; done`)
	p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	p.wantCode(exitLost)
	p.awaitLine("signalled")
}

// All signals that can be caught must reach the command and not end dibs.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "job", "--", "sh", "-c",
		`for s in HUP INT QUIT TERM USR1 USR2 ALRM WINCH CONT; do trap "echo got $s" $s; done
		 trap 'echo bye; exit 7' PWR; echo "pids $$"; while :; do sleep 0.02; done`)
	p.pids()
	for _, name := range []string{"HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "WINCH", "CONT"} {
		p.Process.Signal(signalNumber(name))
		p.awaitLine("got " + name)
	}
	p.Process.Signal(syscall.SIGPWR)
	p.wantCode(7)
	if have := p.stdout.String(); strings.Count(have, "got") != 9 {
		t.Errorf("want each signal once: %s", have)
	}
}

// A signal at any moment ends dibs and leaves no lock behind.
func TestSignalAtAnyMoment(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		for i := range 40 {
			name := "job" + strconv.Itoa(i)
			p := begin(t, s.URL(), "run", name, "--", "sleep", "1000")
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // at any moment
			p.Process.Signal(syscall.SIGTERM)
			p.wantCode(supervise.CodeSignal + int(syscall.SIGTERM))
			if s.held(name) {
				t.Fatalf("%s is still held: %s%s", name, &p.stdout, &p.stderr)
			}
		}
	})
}

// A waiter that receives a signal leaves the queue.
func TestSignalWhileWaiting(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		first := begin(t, s.URL(), "hold", "--no-stdin", "job")
		first.awaitLine("held")
		second := begin(t, s.URL(), "run", "job", "--", "true")
		eventually(t, "it queues", func() bool { return s.waiting("job") == 1 })
		second.Process.Signal(syscall.SIGHUP)
		second.wantCode(supervise.CodeSignal + int(syscall.SIGHUP))
		if s.waiting("job") != 0 {
			t.Error("its queue entry remains")
		}
		first.Process.Signal(syscall.SIGTERM)
		first.wantCode(supervise.CodeSignal + int(syscall.SIGTERM))
		if s.held("job") {
			t.Error("the lock of hold remains")
		}
	})
}

// A second signal during a wait leaves no queue entry either: neither two at once, as
// timeout(1) sends them, nor different ones.
func TestTwoSignalsWhileWaiting(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		first := begin(t, s.URL(), "hold", "--no-stdin", "job")
		first.awaitLine("held")
		for _, signals := range [][]syscall.Signal{
			{syscall.SIGTERM, syscall.SIGTERM},
			{syscall.SIGINT, syscall.SIGTERM},
			{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGTERM},
		} {
			for range 5 {
				p := begin(t, s.URL(), "run", "job", "--", "true")
				eventually(t, "it queues", func() bool { return s.waiting("job") == 1 })
				for i, n := range signals {
					if i > 0 {
						time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // at any moment
					}
					p.Process.Signal(n)
				}
				if code := p.code(); code <= supervise.CodeSignal {
					t.Errorf("exit code %d", code)
				}
				if s.waiting("job") != 0 {
					t.Fatalf("%v: its queue entry remains", signals)
				}
			}
		}
	})
}

// A second signal ends a waiter even if the store does not answer.
func TestTwoSignalsAndAHangingStore(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	first := begin(t, s.URL(), "hold", "--no-stdin", "job")
	first.awaitLine("held")
	p := begin(t, s.URL(), "run", "job", "--", "true")
	store := openTestStore(t, s.URL())
	eventually(t, "it queues", func() bool { return store.waiting("job") == 1 })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	defer s.Resume()
	began := time.Now()
	p.Process.Signal(syscall.SIGTERM)
	p.Process.Signal(syscall.SIGINT)
	p.code()
	if took := time.Since(began); took > 8*time.Second { // --timeout is 10s here
		t.Errorf("dibs exited after %v", took)
	}
}

// awaitSubscriptions waits until n processes are subscribed to their channels: a release may pass
// over an unsubscribed waiter. Without a server it returns at once.
func (s *testStore) awaitSubscriptions(t *testing.T, n int) {
	t.Helper()
	options, err := redis.ParseURL(s.url)
	if err != nil {
		return
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	eventually(t, "all are subscribed", func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "dibs:c:*").Result()
		return err == nil && len(channels) >= n
	})
}

// Fifty processes with the same name should run one at a time, in their order of arrival.
//
// The test is not parallel: it needs a hundred processes.
func TestFiftyProcessesInOrder(t *testing.T) {
	onEachStoreSerially(t, func(t *testing.T, s *testStore) {
		log := filepath.Join(t.TempDir(), "log")
		gate := begin(t, s.URL(), "hold", "--no-stdin", "job")
		gate.awaitLine("held")
		machine := drill.WatchMachine(t.Context(), "")
		var all []*program
		for range 50 {
			all = append(all, begin(t, s.URL(), "run", "job", "--", "sh", "-c", `echo "in $DIBS_TOKEN $DIBS_FENCE" >>"$0"; echo "out $DIBS_TOKEN $DIBS_FENCE" >>"$0"`, log))
		}
		eventually(t, "all queue", func() bool { return s.waiting("job") == len(all) })
		s.awaitSubscriptions(t, len(all))
		waiters := s.state("job").Waiters
		gate.Process.Signal(syscall.SIGTERM)
		for _, p := range all {
			p.wantCode(0)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != 100 {
			t.Fatalf("%d lines, want 100", len(lines))
		}
		// A waiter whose heartbeat is that late may lose its place in the queue. A Redis waiter
		// without a reply for half a second subscribes again, and a release passes over it
		// meanwhile. Another process may be later than this one, hence half of that time.
		late, longest := machine.Late(), driver.WaiterTTL/2
		if strings.HasPrefix(s.URL(), "redis") {
			longest = 250 * time.Millisecond
		}
		inOrder := late < longest
		if !inOrder {
			t.Logf("the order is not checked: the machine stood still for %v", late)
		}
		var last uint64
		for i, waiter := range waiters {
			in, out := strings.Fields(lines[2*i]), strings.Fields(lines[2*i+1])
			fence, err := strconv.ParseUint(in[2], 10, 64)
			if in[0] != "in" || out[0] != "out" || in[1] != out[1] || err != nil || fence <= last {
				t.Fatalf("entry %d: %v, %v after fence %d", i, in, out, last)
			}
			if inOrder && waiter.Token != in[1] {
				t.Errorf("entry %d is %s, want %s", i, in[1], waiter.Token)
			}
			last = fence
		}
	})
}

// A run inside a run should have its own lock and its own process group. If the outer dibs is
// killed, both commands should die.
func TestNested(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		dir := t.TempDir()
		if err := os.Symlink(self(t), filepath.Join(dir, "dibs")); err != nil {
			t.Fatal(err)
		}
		p := prepare(t, s.URL(), "run", "outer", "--", "sh", "-c", `echo "outer $DIBS_NAME $DIBS_FENCE"; dibs run inner -- sh -c 'echo "inner $DIBS_NAME $DIBS_FENCE"; `+parentAndChild+`'`)
		p.Env[0] = "PATH=" + dir + ":" + os.Getenv("PATH")
		p.begin()
		pids := p.pids()
		outer, inner := strings.Fields(p.awaitLine("outer")), strings.Fields(p.awaitLine("inner"))
		if outer[0] != "outer" || inner[0] != "inner" || outer[1] == inner[1] {
			t.Errorf("the commands see %v and %v", outer, inner)
		}
		p.Process.Kill()
		s.wantKilled("inner", pids)
		s.wantKilled("outer", pids)
	})
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// dibs holds the lock while processes from the command run with their files open or in its group.
// With --leave-daemons only the group counts.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo "pids $!"; exit 3`)
	pids := p.pids()
	eventually(t, "it is reported", func() bool { return strings.Contains(p.stderr.String(), "waiting for them") })
	if s.MustCmd(t, "EXISTS", "lock:job") != int64(1) || !anyAlive(pids) {
		t.Error("the lock was released, or the process is dead")
	}
	p.Process.Signal(syscall.SIGTERM)
	p.wantCode(3)
	if anyAlive(pids) {
		t.Error("alive after dibs has exited")
	}

	const session = `setsid sh -c 'echo "pids $$"; exec sleep 1000 >/dev/null 2>&1' & until [ -e "$0" ]; do sleep 0.02; done; exit 4`
	gate := filepath.Join(t.TempDir(), "gate")
	p = begin(t, s.URL(), "run", "job", "--", "sh", "-c", session, gate)
	pids = p.pids()
	writeFile(t, gate)
	eventually(t, "it is reported", func() bool { return strings.Contains(p.stderr.String(), "waiting for them") })
	p.Process.Signal(syscall.SIGTERM)
	p.wantCode(4)
	if anyAlive(pids) {
		t.Error("alive after dibs has exited")
	}

	p = begin(t, s.URL(), "run", "--leave-daemons", "job", "--", "sh", "-c", session, gate)
	pids = p.pids()
	p.wantCode(4)
	if !anyAlive(pids) || s.MustCmd(t, "EXISTS", "lock:job") != int64(0) {
		t.Error("the daemon is dead, or its lock is still held")
	}
}

// writeFile creates a file that a script waits for.
func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The command's own process is killed, as by the kernel when memory is short. dibs holds the lock
// until the processes started by the command have ended, wherever they are.
func TestCommandIsKilled(t *testing.T) {
	onEachEscape(t, func(t *testing.T, s *testStore, how string) {
		gate := filepath.Join(t.TempDir(), "gate")
		p, pids := beginEscape(t, s.URL(), how, fmt.Sprintf(`trap '' HUP; echo "pids $$"; until [ -e %s ]; do sleep 0.02; done`, gate))
		syscall.Kill(pidOf(t, commandOf(t, p)), syscall.SIGKILL)
		next := begin(t, s.URL(), "run", "job", "--", "true")
		eventually(t, "the next run queues, or the process is dead", func() bool { return s.waiting("job") == 1 || !anyAlive(pids) || exited(next) })
		for range 20 {
			lives := anyAlive(pids)
			if lives && exited(next) {
				t.Fatal("the next run has ended while a process of the command is alive")
			}
			time.Sleep(10 * time.Millisecond) // in which it must not be released
		}
		writeFile(t, gate)
		p.wantCode(supervise.CodeSignal + int(syscall.SIGKILL))
		next.wantCode(0)
	})
}

func exited(p *program) bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// commandOf returns the process ID of a run's command.
func commandOf(t *testing.T, p *program) string {
	t.Helper()
	command := first(childrenOf(pidOf(t, watchdogOf(t, p, ""))))
	if command == 0 {
		t.Fatal("no command")
	}
	return strconv.Itoa(command)
}

// If the watchdog is killed, dibs ends the command and reports it: nothing would end the
// command if dibs were killed next.
func TestWatchdogIsKilled(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		for how, argv := range map[string][]string{"group": {"sh", "-c", stubborn}, "session": {"setsid", "-w", "sh", "-c", stubborn}} {
			p := begin(t, s.URL(), append([]string{"run", "--ttl", "1h", how, "--"}, argv...)...)
			pids := p.pids()
			syscall.Kill(pidOf(t, watchdogOf(t, p, "")), syscall.SIGKILL)
			p.wantCode(exitLost)
			if anyAlive(pids) {
				t.Error("alive after dibs has exited")
			}
			if s.held(how) || !strings.Contains(p.stderr.String(), fmt.Sprintf("lease on %q lost: the watchdog process was killed", how)) {
				t.Errorf("the lock is still held, or stderr is %q", &p.stderr)
			}
		}
	})
}

func pidOf(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil || n <= 1 {
		t.Fatalf("%q is not a process ID: %v", text, err)
	}
	return n
}

// watchdogOf returns the process ID of a program's watchdog, or "" if there is none besides other.
func watchdogOf(t *testing.T, p *program, other string) string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		pid := strings.Split(file, "/")[2]
		text, _ := os.ReadFile(file)
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if bytes.HasPrefix(text, []byte("dibs\x00"+supervise.WatchdogArg+"\x00")) && len(fields) > 1 && string(fields[1]) == strconv.Itoa(p.Process.Pid) && pid != other && alive(pid) {
			return pid
		}
	}
	return ""
}

// dibs works without HOME, a terminal, and open standard files.
func TestMinimalEnvironment(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		mark := filepath.Join(t.TempDir(), "mark")
		p := prepare(t, s.URL(), "run", "job", "--", "/bin/sh", "-c", `echo "$DIBS_NAME" >"$0"`, mark)
		p.Env = []string{"DIBS_URL=" + s.URL(), longTimeout, noRaceSleep}
		p.Stdin, p.Stdout, p.Stderr = nil, nil, nil
		p.begin()
		p.wantCode(0)
		closed := exec.Command("/bin/sh", "-c", `exec "$0" "$@" <&- >&- 2>&-`, "dibs", "run", "job", "--", "/bin/sh", "-c", `[ "$DIBS_NAME" = job ]`)
		closed.Env = []string{"DIBS_URL=" + s.URL(), "PATH=" + dirWithDibs(t), longTimeout, noRaceSleep}
		if err := closed.Run(); err != nil {
			t.Errorf("with closed files: %v", err)
		}
		if text, err := os.ReadFile(mark); err != nil || string(text) != "job\n" {
			t.Errorf("have %q, %v", text, err)
		}
	})
}

// dirWithDibs returns a directory that contains dibs.
func dirWithDibs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(dir, "dibs")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The command inherits dibs' own input and output, not copies.
func TestInputIsPassedThrough(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := prepare(t, s.URL(), "run", "job", "--", "sh", "-c", "read line; echo $line; cat >&2")
	p.Stdin = strings.NewReader("first\nrest\n")
	p.begin()
	p.wantCode(0)
	if p.stdout.String() != "first\n" || p.stderr.String() != "rest\n" {
		t.Errorf("have %q and %q", &p.stdout, &p.stderr)
	}
}

// A closed stderr ends neither dibs nor its command.
func TestBrokenOutput(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := prepare(t, s.URL(), "run", "--json", "job", "--", "sh", "-c", "exit 9")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = w
	r.Close()
	defer w.Close()
	p.begin()
	p.wantCode(9)
}

// hold releases the lock when its input ends.
func TestHold(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		p := prepare(t, s.URL(), "hold", "--ttl", "3s", "job")
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.begin()
		token, fence, _ := strings.Cut(p.awaitLine("held"), " ")
		owner := func() string {
			for _, h := range s.state("job").Holders {
				return h.Token
			}
			return ""
		}
		if owner() != token || fence == "" {
			t.Errorf("it prints %s, %s; the owner is %s", token, fence, owner())
		}
		io.WriteString(in, "more\n")
		eventually(t, "renewed", func() bool { return owner() == token && sinceFirstCall(p) > 4*time.Second })
		in.Close()
		p.wantCode(0)
		if s.held("job") {
			t.Error("the lock is still held")
		}
	})
}

var firstCalls sync.Map

func sinceFirstCall(p *program) time.Duration {
	at, _ := firstCalls.LoadOrStore(p, time.Now())
	return time.Since(at.(time.Time))
}

// hold ends when its parent process exits, even if the input stays open.
func TestHoldersParentIsGone(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		sh := exec.Command("/bin/sh", "-c", `dibs hold --no-stdin --ttl 20s job & read line`)
		sh.Env = []string{"DIBS_URL=" + s.URL(), "PATH=" + dirWithDibs(t), longTimeout, noRaceSleep}
		in, err := sh.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := sh.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "held", func() bool { return s.held("job") })
		in.Close()
		sh.Wait()
		eventually(t, "released", func() bool { return !s.held("job") })
	})
}

// If the leader is killed, the next candidate should lead when the lease expires.
func TestElect(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		script := `echo "term $DIBS_FENCE"; ` + parentAndChild
		first := begin(t, s.URL(), "elect", "--ttl", "3s", "boss", "--", "sh", "-c", script)
		term1, err1 := strconv.ParseUint(first.awaitLine("term"), 10, 64)
		second := begin(t, s.URL(), "elect", "--ttl", "3s", "boss", "--", "sh", "-c", script)
		pids := first.pids()
		eventually(t, "it stands by", func() bool { return s.waiting("boss") == 1 })
		first.Process.Kill()
		term2, err2 := strconv.ParseUint(second.awaitLine("term"), 10, 64)
		if anyAlive(pids) {
			t.Error("the command of the killed leader still runs")
		}
		if errors.Join(err1, err2) != nil || term2 <= term1 {
			t.Errorf("terms %d and %d", term1, term2)
		}
		second.Process.Signal(syscall.SIGTERM)
		second.wantCode(supervise.CodeSignal + int(syscall.SIGTERM))
		if s.held("boss") {
			t.Error("the term was not released")
		}
	})
}

// A leader that lost its term should campaign again.
func TestElectCampaignsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "elect", "--ttl", "500ms", "boss", "--", "sh", "-c", `echo "term $DIBS_FENCE"; sleep 1000`)
	p.awaitLine("term")
	s.MustCmd(t, "DEL", "lock:boss")
	eventually(t, "another term", func() bool { return strings.Count(p.stdout.String(), "term") == 2 })
	p.Process.Signal(syscall.SIGINT)
	p.wantCode(supervise.CodeSignal + int(syscall.SIGINT))
}

// A command and a watchdog survive a stop, if they are continued: dibs has renewed the lock
// meanwhile.
func TestGroupIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "2s", "job", "--", "sh", "-c", `echo "pids $$"; sleep 4; exit 5`)
	command, watchdog := pidOf(t, p.pids()[0]), pidOf(t, watchdogOf(t, p, ""))
	syscall.Kill(-command, syscall.SIGSTOP)
	syscall.Kill(watchdog, syscall.SIGSTOP)
	time.Sleep(2500 * time.Millisecond) // longer than the TTL
	syscall.Kill(-command, syscall.SIGCONT)
	p.wantCode(5)
}

// A stopped watchdog does not delay the release after the command ends.
func TestWatchdogIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := filepath.Join(t.TempDir(), "gate")
	p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", `echo "pids $$"; until [ -e "$0" ]; do sleep 0.02; done; exit 5`, gate)
	p.pids()
	watchdog, _ := strconv.Atoi(watchdogOf(t, p, ""))
	syscall.Kill(watchdog, syscall.SIGSTOP)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.wantCode(5)
}

// A watchdog killed before the command's start should be replaced.
func TestWatchdogIsKilledWhileWaiting(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		first := begin(t, s.URL(), "hold", "--no-stdin", "job")
		first.awaitLine("held")
		p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", parentAndChild)
		eventually(t, "it queues", func() bool { return s.waiting("job") == 1 })
		var watchdog string
		eventually(t, "a watchdog", func() bool { watchdog = watchdogOf(t, p, ""); return watchdog != "" })
		n, _ := strconv.Atoi(watchdog)
		syscall.Kill(n, syscall.SIGKILL)
		first.Process.Signal(syscall.SIGTERM)
		pids := p.pids()
		eventually(t, "another watchdog", func() bool { return watchdogOf(t, p, watchdog) != "" })
		p.Process.Kill()
		eventually(t, "all dead", func() bool { return !anyAlive(pids) })
	})
}

// If a renewal reaches the watchdog too late, the watchdog kills the command. This counts as a
// loss, not as the command's own end.
func TestRenewalReachesTheWatchdogLate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for range 50 {
		p := begin(t, s.URL(), "run", "--ttl", "10ms", "job", "--", "sleep", "1000")
		code, text := p.code(), p.stderr.String()
		if code == exitTrouble && strings.Contains(text, "after the lease had expired") {
			continue // the machine is too busy even for the acquire
		}
		if code != exitLost || !strings.Contains(text, "lost") {
			t.Errorf("exit code %d, want %d; stderr is %q", code, exitLost, text)
		}
		return
	}
	t.Skip("SKIPPED: no acquire took less than 10ms")
}

// dibs works as the first process in a PID namespace: its process group belongs to another
// namespace.
func TestNamespace(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-pf", "--mount-proc", "true").Run(); err != nil {
		t.Skip("no namespaces here:", err)
	}
	s := redistest.Start(t)
	p := prepareUnshared(t, s.URL(), "-pf", "--kill-child", "--mount-proc", "dibs", "run", "job", "--", "sh", "-c", "exit 5")
	p.begin()
	p.wantCode(5)
}

// prepareUnshared prepares unshare(1) with arguments, and a PATH with dibs.
func prepareUnshared(t *testing.T, url string, args ...string) *program {
	t.Helper()
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	p := prepare(t, url, args...)
	p.Path = path
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	return p
}

// A server with room for few clients serves all waiting processes: each tries again, and keeps no
// connection meanwhile.
func TestFullServer(t *testing.T) {
	t.Parallel()
	const processes = 24
	s := redistest.Start(t, "--maxclients", "10")
	var all []*program
	for i := range processes {
		all = append(all, begin(t, s.URL(), "run", "-w", "5m", "--timeout", "2s", fmt.Sprint("job", i%3), "--", "true"))
	}
	for _, p := range all {
		p.wantCode(0)
	}
}
