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

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A program is dibs, run by a test.
type program struct {
	*exec.Cmd
	t      *testing.T
	stdout buffer
	stderr buffer
	ended  chan struct{}
}

// A buffer may be read while a program writes to it.
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

// A busy machine takes longer than a person would wait for one operation; and the race
// detector sleeps for a second at the end of each process, unless it is told not to.
const (
	patiently = "DIBS_TIMEOUT=10s"
	hasty     = "GORACE=atexit_sleep_ms=0"
)

// prepare returns a program with an environment that has nothing but where the store is,
// as cron's has.
func prepare(t *testing.T, url string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...), t: t, ended: make(chan struct{})}
	p.Args[0] = "dibs"
	p.Dir = t.TempDir()
	p.Env = []string{"PATH=" + os.Getenv("PATH"), "DIBS_URL=" + url, patiently, hasty}
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
	p.watched(func() {})
}

// watched has a program that was started ended with the test, if not before.
func (p *program) watched(then func()) {
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

// code waits for the end, and returns the exit code, as shells tell it.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end", p.Args)
	}
	return codeOfStatus(p.ProcessState.Sys().(syscall.WaitStatus))
}

func (p *program) wantCode(want int) {
	p.t.Helper()
	if have := p.code(); have != want {
		p.t.Errorf("%v: exit code %d, want %d\n%s%s", p.Args, have, want, &p.stdout, &p.stderr)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// says waits for a line on stdout that begins with a word, and returns the rest.
func (p *program) says(word string) (rest string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q by %v, which says %s%s", word, p.Args, &p.stdout, &p.stderr), func() bool {
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

// A place is a store, as a test looks at it.
type place struct {
	t     *testing.T
	url   string
	store *opened
}

// onEachStore runs a test with a Redis and with a local file.
func onEachStore(t *testing.T, test func(t *testing.T, s *place)) {
	t.Helper()
	t.Parallel()
	inTurn(t, func(t *testing.T, s *place) {
		t.Parallel()
		test(t, s)
	})
}

func inTurn(t *testing.T, test func(t *testing.T, s *place)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { test(t, openPlace(t, redistest.Start(t).URL())) })
	t.Run("local", func(t *testing.T) { test(t, openPlace(t, "local:"+filepath.Join(t.TempDir(), "locks.db"))) })
}

func openPlace(t *testing.T, url string) *place {
	t.Helper()
	a := &app{getenv: func(string) string { return "" }, urls: []string{url}}
	store, err := a.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.close() })
	return &place{t: t, url: url, store: store}
}

func (s *place) URL() string { return s.url }

// state is what the store knows of a name.
func (s *place) state(name string) dibs.State {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	state, err := s.store.Inspect(ctx, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *place) held(name string) bool { return s.state(name).Holding > 0 }

func (s *place) waiting(name string) int { return s.state(name).Waiting }

// alive reports whether a process does anything.
func alive(pid string) bool {
	state := processState(pid)
	return state != "" && state != "Z" && state != "X"
}

// processState is a letter of the kernel's, or "" if there is no such process.
func processState(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	return string(bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])[0])
}

// family is a shell that has started another process, and waits for it.
const family = `sleep 1000 & echo "pids $$ $!"; wait`

// stubborn is one that does not end when it is asked to.
const stubborn = `trap '' TERM INT HUP; sleep 1000 & echo "pids $$ $!"; wait; wait`

func (p *program) pids() []string {
	p.t.Helper()
	pids := strings.Fields(p.says("pids"))
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

// A wrapper that is killed takes the command and all that it has started with it, at
// once, and so before its lock is free.
func TestWrapperIsKilled(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		for name, script := range map[string]string{"family": family, "stubborn": stubborn} {
			p := begin(t, s.URL(), "run", "--ttl", "20s", name, "--", "sh", "-c", script)
			pids := p.pids()
			p.Process.Kill()
			s.wantKilled(name, pids)
		}
	})
}

// wantKilled waits until the command of a killed dibs is dead. The lock is not free before: on
// a Redis not until its TTL is over, in a file as soon as nothing of it is left.
func (s *place) wantKilled(name string, pids []string) {
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
		s.t.Error("the lock is free, and the command is alive")
	}
	s.t.Logf("%s is free after %v", name, time.Since(began))
}

// A file's lock stays while something of the command lives that nobody could kill.
func TestCommandOutlivesBoth(t *testing.T) {
	t.Parallel()
	s := openPlace(t, "local:"+filepath.Join(t.TempDir(), "locks.db"))
	p := begin(t, s.URL(), "run", "--ttl", "1h", "job", "--", "sh", "-c", family)
	pids := p.pids()
	guard := pidOf(t, guardOf(t, p, ""))
	syscall.Kill(guard, syscall.SIGSTOP)
	syscall.Kill(guard, syscall.SIGKILL)
	p.Process.Kill() // the kernel kills the shell, and not what that has started
	p.code()
	next := begin(t, s.URL(), "run", "job", "--", "echo", "entered")
	eventually(t, "it queues", func() bool { return s.waiting("job") == 1 || !anyAlive(pids) })
	for range 20 {
		entered, lives := next.stdout.String() != "", alive(pids[1])
		if entered && lives {
			t.Fatal("entered beside a process of the command")
		}
		time.Sleep(20 * time.Millisecond)
	}
	syscall.Kill(pidOf(t, pids[1]), syscall.SIGKILL)
	next.wantCode(0)
}

// What acquire leaves in a file lasts until its TTL, and another process renews and releases it.
func TestAcquireOutlivesItself(t *testing.T) {
	t.Parallel()
	s := openPlace(t, "local:"+filepath.Join(t.TempDir(), "locks.db"))
	p := prepare(t, s.URL(), "-c", `held=$(dibs acquire --ttl 1m job) && eval "$held" && dibs renew && dibs run -n job -- true; echo "code $?"; dibs release && dibs run -n job -- echo "entered"`)
	p.Path, p.Args[0] = "/bin/sh", "sh"
	p.Env[0] = "PATH=" + linked(t) + ":" + os.Getenv("PATH")
	p.begin()
	if code := p.says("code"); code != "75" {
		t.Errorf("code %s", code)
	}
	p.says("entered")
}

// A wrapper that is killed at any moment leaves nothing that runs under a free lock.
func TestWrapperIsKilledAtAnyMoment(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		marks := t.TempDir()
		for i := range 40 {
			mark := filepath.Join(marks, strconv.Itoa(i))
			p := begin(t, s.URL(), "run", "--ttl", "10s", strconv.Itoa(i), "--", "sh", "-c", `sleep 1000 & echo $$ $! >"$0"; wait`, mark)
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // at any moment
			p.Process.Kill()
			p.code()
			// A shell that was killed before it could write is found by its argument.
			eventually(t, "nothing runs", func() bool { return !mentioned(t, mark) })
			pids, _ := os.ReadFile(mark)
			eventually(t, "all dead", func() bool { return !anyAlive(strings.Fields(string(pids))) })
		}
	})
}

// mentioned reports whether a process has a word among its arguments.
func mentioned(t *testing.T, word string) bool {
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

// A wrapper that is stopped cannot renew: its command is dead before the next one enters.
func TestWrapperIsStopped(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		p := begin(t, s.URL(), "run", "--ttl", "1s", "job", "--", "sh", "-c", stubborn)
		pids := p.pids()
		p.Process.Signal(syscall.SIGSTOP)
		next := begin(t, s.URL(), "run", "job", "--", "cat", "/proc/"+pids[0]+"/status", "/proc/"+pids[1]+"/status")
		next.code()
		for line := range strings.Lines(next.stdout.String()) {
			if strings.HasPrefix(line, "State:") && !strings.Contains(line, "zombie") { // its parent is stopped
				t.Errorf("of the one that was stopped something has the %s when the next one runs", line)
			}
		}
		p.Process.Signal(syscall.SIGCONT)
		p.wantCode(exitLost)
	})
}

// If Redis dies the command is asked to end, and killed, before the lease is over.
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
				t.Error("it was not asked to end first")
			}
			if !strings.Contains(p.stderr.String(), "lost") {
				t.Errorf("stderr says %q", &p.stderr)
			}
		})
	}
}

// A lock that an operator ends: the command is asked to end, and dibs says that it was
// lost, though the command ends well.
func TestLockIsTakenAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "300ms", "--kill-after", "100ms", "job", "--", "sh", "-c",
		`trap 'exit 0' TERM; echo "pids $$"; while :; do sleep 0.02; done`)
	p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	p.wantCode(exitLost)
}

// What is told to let it go on is let go on.
func TestOnLostWarn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := filepath.Join(t.TempDir(), "gate")
	p := begin(t, s.URL(), "run", "--ttl", "3s", "--kill-after", "300ms", "--on-lost", "warn", "--json", "job", "--", "sh", "-c",
		`echo "pids $$"; until [ -e "$0" ]; do sleep 0.02; done; exit 5`, gate)
	pids := p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	eventually(t, "told", func() bool { return strings.Contains(p.stderr.String(), `"event":"lost"`) })
	if !anyAlive(pids) {
		t.Error("it was ended")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.wantCode(exitLost)
}

func TestOnLostSignal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "1s", "--on-lost", "USR1", "job", "--", "sh", "-c",
		`trap 'echo told; exit 0' USR1; echo "pids $$"; while :; do sleep 0.02; done`)
	p.pids()
	s.MustCmd(t, "DEL", "lock:job")
	p.wantCode(exitLost)
	p.says("told")
}

// Each signal that can be caught reaches the command, and not dibs.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "job", "--", "sh", "-c",
		`for s in HUP INT QUIT TERM USR1 USR2 ALRM WINCH CONT; do trap "echo got $s" $s; done
		 trap 'echo bye; exit 7' PWR; echo "pids $$"; while :; do sleep 0.02; done`)
	p.pids()
	for _, name := range []string{"HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "WINCH", "CONT"} {
		p.Process.Signal(signalNumber(name))
		p.says("got " + name)
	}
	p.Process.Signal(syscall.SIGPWR)
	p.wantCode(7)
	if have := p.stdout.String(); strings.Count(have, "got") != 9 {
		t.Errorf("want each signal once: %s", have)
	}
}

// A signal ends dibs in time at whatever moment it comes, and leaves nothing behind.
func TestSignalAtAnyMoment(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		for i := range 40 {
			name := "job" + strconv.Itoa(i)
			p := begin(t, s.URL(), "run", name, "--", "sleep", "1000")
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // at any moment
			p.Process.Signal(syscall.SIGTERM)
			p.wantCode(exitSignal + int(syscall.SIGTERM))
			if s.held(name) {
				t.Fatalf("%s is locked: %s%s", name, &p.stdout, &p.stderr)
			}
		}
	})
}

// Who waits and gets a signal leaves the queue.
func TestSignalWhileWaiting(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		first := begin(t, s.URL(), "hold", "--no-stdin", "job")
		first.says("held")
		second := begin(t, s.URL(), "run", "job", "--", "true")
		eventually(t, "it queues", func() bool { return s.waiting("job") == 1 })
		second.Process.Signal(syscall.SIGHUP)
		second.wantCode(exitSignal + int(syscall.SIGHUP))
		if s.waiting("job") != 0 {
			t.Error("it has left its place in the queue")
		}
		first.Process.Signal(syscall.SIGTERM)
		first.wantCode(exitSignal + int(syscall.SIGTERM))
		if s.held("job") {
			t.Error("hold has left the lock")
		}
	})
}

// A second signal while dibs waits leaves nothing in the queue either: neither two at once, as
// timeout(1) sends them, nor others that hurry it.
func TestTwoSignalsWhileWaiting(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		first := begin(t, s.URL(), "hold", "--no-stdin", "job")
		first.says("held")
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
				if code := p.code(); code <= exitSignal {
					t.Errorf("exit code %d", code)
				}
				if s.waiting("job") != 0 {
					t.Fatalf("%v: its place in the queue is left", signals)
				}
			}
		}
	})
}

// Who waits for a store that does not answer is ended by a second signal all the same.
func TestTwoSignalsAndAMuteStore(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	first := begin(t, s.URL(), "hold", "--no-stdin", "job")
	first.says("held")
	p := begin(t, s.URL(), "run", "job", "--", "true")
	look := openPlace(t, s.URL())
	eventually(t, "it queues", func() bool { return look.waiting("job") == 1 })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	defer s.Resume()
	began := time.Now()
	p.Process.Signal(syscall.SIGTERM)
	p.Process.Signal(syscall.SIGINT)
	p.code()
	if took := time.Since(began); took > 8*time.Second { // a --timeout, which is 10s, and more without the second one
		t.Errorf("it ended after %v", took)
	}
}

// awaitListeners waits until so many processes are subscribed. One that is not yet may be
// passed over once. Where there is no server it returns at once.
func (s *place) awaitListeners(t *testing.T, n int) {
	t.Helper()
	options, err := redis.ParseURL(s.url)
	if err != nil {
		return
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	eventually(t, "all listen", func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "dibs:c:*").Result()
		return err == nil && len(channels) >= n
	})
}

// Fifty processes that run one name do it one at a time, in the order in which they came.
//
// Not parallel: a hundred processes are enough for a machine.
func TestFifty(t *testing.T) {
	inTurn(t, func(t *testing.T, s *place) {
		log := filepath.Join(t.TempDir(), "log")
		gate := begin(t, s.URL(), "hold", "--no-stdin", "job")
		gate.says("held")
		machine := drill.WatchMachine(t.Context(), "")
		var all []*program
		for range 50 {
			all = append(all, begin(t, s.URL(), "run", "job", "--", "sh", "-c", `echo "in $DIBS_TOKEN $DIBS_FENCE" >>"$0"; echo "out $DIBS_TOKEN $DIBS_FENCE" >>"$0"`, log))
		}
		eventually(t, "all queue", func() bool { return s.waiting("job") == len(all) })
		s.awaitListeners(t, len(all))
		places := s.state("job").Waiters
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
		// A waiter whose heartbeat is that late may lose its place in the queue.
		late := machine.Late()
		inOrder := late < dibs.ClaimTTL/2
		if !inOrder {
			t.Logf("the order is not checked: the machine stood still for %v", late)
		}
		var last uint64
		for i, place := range places {
			in, out := strings.Fields(lines[2*i]), strings.Fields(lines[2*i+1])
			fence, err := strconv.ParseUint(in[2], 10, 64)
			if in[0] != "in" || out[0] != "out" || in[1] != out[1] || err != nil || fence <= last {
				t.Fatalf("entry %d: %v, %v after fence %d", i, in, out, last)
			}
			if inOrder && place.Token != in[1] {
				t.Errorf("entry %d is %s, want %s", i, in[1], place.Token)
			}
			last = fence
		}
	})
}

// A run inside a run has its own lock and its own group; who kills the outer one ends
// both commands.
func TestNested(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		dir := t.TempDir()
		if err := os.Symlink(self(t), filepath.Join(dir, "dibs")); err != nil {
			t.Fatal(err)
		}
		p := prepare(t, s.URL(), "run", "outer", "--", "sh", "-c", `echo "outer $DIBS_NAME $DIBS_FENCE"; dibs run inner -- sh -c 'echo "inner $DIBS_NAME $DIBS_FENCE"; `+family+`'`)
		p.Env[0] = "PATH=" + dir + ":" + os.Getenv("PATH")
		p.begin()
		pids := p.pids()
		outer, inner := strings.Fields(p.says("outer")), strings.Fields(p.says("inner"))
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

// What a command leaves running in its group keeps the lock; what has left the group, as
// a daemon does, does not.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo "pids $!"; exit 3`)
	pids := p.pids()
	eventually(t, "it says so", func() bool { return strings.Contains(p.stderr.String(), "left something running") })
	if s.MustCmd(t, "EXISTS", "lock:job") != int64(1) || !anyAlive(pids) {
		t.Error("the lock was given back, or the process is dead")
	}
	p.Process.Signal(syscall.SIGTERM)
	p.wantCode(3)
	if anyAlive(pids) {
		t.Error("alive after dibs has ended")
	}

	p = begin(t, s.URL(), "run", "job", "--", "sh", "-c", `setsid sleep 1000 >/dev/null 2>&1 & echo "pids $!"; sleep 0.2; exit 4`)
	pids = p.pids()
	p.wantCode(4)
	if !anyAlive(pids) || s.MustCmd(t, "EXISTS", "lock:job") != int64(0) {
		t.Error("the daemon is dead, or the lock is kept for it")
	}
}

// A guard that is killed takes all with it, and dibs says so: nobody could end the command
// if dibs were killed next.
func TestGuardIsKilled(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		for how, argv := range map[string][]string{"family": {"sh", "-c", stubborn}, "session": {"setsid", "-w", "sh", "-c", stubborn}} {
			p := begin(t, s.URL(), append([]string{"run", "--ttl", "1h", how, "--"}, argv...)...)
			pids := p.pids()
			syscall.Kill(pidOf(t, guardOf(t, p, "")), syscall.SIGKILL)
			p.wantCode(exitLost)
			if anyAlive(pids) {
				t.Error("alive after dibs has ended")
			}
			if s.held(how) || !strings.Contains(p.stderr.String(), "guard was killed") {
				t.Errorf("the lock is kept, or stderr says only %q", &p.stderr)
			}
		}
	})
}

func pidOf(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil || n <= 1 {
		t.Fatalf("%q is no process: %v", text, err)
	}
	return n
}

// guardOf returns the process id of a program's guard, if it is another one than that.
func guardOf(t *testing.T, p *program, other string) string {
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
		if bytes.HasPrefix(text, []byte("dibs\x00guard\x00")) && len(fields) > 1 && string(fields[1]) == strconv.Itoa(p.Process.Pid) && pid != other && alive(pid) {
			return pid
		}
	}
	return ""
}

// dibs works without a home, a terminal, or open standard files.
func TestBare(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		mark := filepath.Join(t.TempDir(), "mark")
		p := prepare(t, s.URL(), "run", "job", "--", "/bin/sh", "-c", `echo "$DIBS_NAME" >"$0"`, mark)
		p.Env = []string{"DIBS_URL=" + s.URL(), patiently, hasty}
		p.Stdin, p.Stdout, p.Stderr = nil, nil, nil
		p.begin()
		p.wantCode(0)
		closed := exec.Command("/bin/sh", "-c", `exec "$0" "$@" <&- >&- 2>&-`, "dibs", "run", "job", "--", "/bin/sh", "-c", `[ "$DIBS_NAME" = job ]`)
		closed.Env = []string{"DIBS_URL=" + s.URL(), "PATH=" + linked(t), patiently, hasty}
		if err := closed.Run(); err != nil {
			t.Errorf("with closed files: %v", err)
		}
		if text, err := os.ReadFile(mark); err != nil || string(text) != "job\n" {
			t.Errorf("have %q, %v", text, err)
		}
	})
}

// linked is a directory with dibs in it.
func linked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(dir, "dibs")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The command has dibs' own input and output, not copies of them.
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

// A reader that is gone ends neither dibs nor its command.
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

// hold gives the lock back when its input ends.
func TestHold(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		p := prepare(t, s.URL(), "hold", "--ttl", "300ms", "job")
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.begin()
		name, token, fence := fields3(p.says("held"))
		owner := func() string { return s.state("job").Holders[0].Token }
		if name != "job" || owner() != token || fence == "" {
			t.Errorf("it says %s, %s, %s; the lock has %s", name, token, fence, owner())
		}
		io.WriteString(in, "more\n")
		eventually(t, "renewed", func() bool { return owner() == token && lived(p) > 600*time.Millisecond })
		in.Close()
		p.wantCode(0)
		if s.held("job") {
			t.Error("the lock is kept")
		}
	})
}

func fields3(s string) (a, b, c string) {
	f := append(strings.Fields(s), "", "", "")
	return f[0], f[1], f[2]
}

var started sync.Map

func lived(p *program) time.Duration {
	at, _ := started.LoadOrStore(p, time.Now())
	return time.Since(at.(time.Time))
}

// hold ends with whoever has started it, also if the input stays open.
func TestHoldersParentIsGone(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		sh := exec.Command("/bin/sh", "-c", `dibs hold --no-stdin --ttl 20s job & read line`)
		sh.Env = []string{"DIBS_URL=" + s.URL(), "PATH=" + linked(t), patiently, hasty}
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
		eventually(t, "given back", func() bool { return !s.held("job") })
	})
}

// The leader that is killed is followed by the next one, when its lease is over.
func TestElect(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		script := `echo "term $DIBS_FENCE"; ` + family
		first := begin(t, s.URL(), "elect", "--ttl", "1s", "boss", "--", "sh", "-c", script)
		term1, err1 := strconv.ParseUint(first.says("term"), 10, 64)
		second := begin(t, s.URL(), "elect", "--ttl", "1s", "boss", "--", "sh", "-c", script)
		pids := first.pids()
		eventually(t, "it stands by", func() bool { return s.waiting("boss") == 1 })
		first.Process.Kill()
		term2, err2 := strconv.ParseUint(second.says("term"), 10, 64)
		if anyAlive(pids) {
			t.Error("two leaders")
		}
		if errors.Join(err1, err2) != nil || term2 <= term1 {
			t.Errorf("terms %d and %d", term1, term2)
		}
		second.Process.Signal(syscall.SIGTERM)
		second.wantCode(exitSignal + int(syscall.SIGTERM))
		if s.held("boss") {
			t.Error("the term was not given back")
		}
	})
}

// A leader that has lost its term stands again.
func TestElectStandsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "elect", "--ttl", "500ms", "boss", "--", "sh", "-c", `echo "term $DIBS_FENCE"; sleep 1000`)
	p.says("term")
	s.MustCmd(t, "DEL", "lock:boss")
	eventually(t, "another term", func() bool { return strings.Count(p.stdout.String(), "term") == 2 })
	p.Process.Signal(syscall.SIGINT)
	p.wantCode(exitSignal + int(syscall.SIGINT))
}

// A group that was stopped and goes on, with its guard in it, is left alone: dibs has
// renewed the lock meanwhile.
func TestGroupIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "2s", "job", "--", "sh", "-c", `echo "pids $$"; sleep 4; exit 5`)
	command, guard := pidOf(t, p.pids()[0]), pidOf(t, guardOf(t, p, ""))
	syscall.Kill(-command, syscall.SIGSTOP)
	syscall.Kill(guard, syscall.SIGSTOP)
	time.Sleep(2500 * time.Millisecond) // longer than the TTL
	syscall.Kill(-command, syscall.SIGCONT)
	p.wantCode(5)
}

// A guard that is stopped does not keep the lock after its command has ended.
func TestGuardIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := filepath.Join(t.TempDir(), "gate")
	p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", `echo "pids $$"; until [ -e "$0" ]; do sleep 0.02; done; exit 5`, gate)
	p.pids()
	guard, _ := strconv.Atoi(guardOf(t, p, ""))
	syscall.Kill(guard, syscall.SIGSTOP)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.wantCode(5)
}

// A guard that was killed before there was a command is replaced.
func TestGuardIsKilledWhileWaiting(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *place) {
		first := begin(t, s.URL(), "hold", "--no-stdin", "job")
		first.says("held")
		p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", family)
		eventually(t, "it queues", func() bool { return s.waiting("job") == 1 })
		var guard string
		eventually(t, "a guard", func() bool { guard = guardOf(t, p, ""); return guard != "" })
		n, _ := strconv.Atoi(guard)
		syscall.Kill(n, syscall.SIGKILL)
		first.Process.Signal(syscall.SIGTERM)
		pids := p.pids()
		eventually(t, "another guard", func() bool { return guardOf(t, p, guard) != "" })
		p.Process.Kill()
		eventually(t, "all dead", func() bool { return !anyAlive(pids) })
	})
}

// A guard that was not told of a renewal in time, and so has killed the command, is a
// loss, and not the command's own end.
func TestGuardIsToldLate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := begin(t, s.URL(), "run", "--ttl", "10ms", "job", "--", "sleep", "1000")
	p.wantCode(exitLost)
	if !strings.Contains(p.stderr.String(), "lost") {
		t.Errorf("stderr says %q", &p.stderr)
	}
}

// The first process of a namespace is in a group of another one.
func TestNamespace(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-pf", "--mount-proc", "true").Run(); err != nil {
		t.Skip("no namespaces here:", err)
	}
	s := redistest.Start(t)
	p := prepare(t, s.URL(), "-pf", "--kill-child", "--mount-proc", "dibs", "run", "job", "--", "sh", "-c", "exit 5")
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	p.Path = path
	p.Env[0] = "PATH=" + linked(t) + ":" + os.Getenv("PATH")
	p.begin()
	p.wantCode(5)
}
