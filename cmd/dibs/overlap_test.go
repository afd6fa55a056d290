//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"golang.org/x/sys/unix"
)

// works are commands that work until the file $GATE exists, in many kinds of processes. Some exit
// before their work ends.
var works = map[string]string{
	"itself":            `eval "$WORK"`,
	"child":             `sh -c "$WORK" & wait`,
	"left behind":       `sh -c "$WORK" &`,
	"timeout":           `timeout 100 sh -c "$WORK"; true`,
	"session":           `setsid -w sh -c "$WORK"; true`,
	"left in a session": `setsid sh -c "$WORK" &`,
	"job control":       `set -m; sh -c "$WORK" & wait`,
	"chain of 0.3 ms":   `PAUSE=: sh -c "$CHAIN"`, // as fast as a shell can fork
	"chain of 1 ms":     `PAUSE="sleep 0.001" setsid sh -c "$CHAIN"`,
	"chain of 20 ms":    `PAUSE="sleep 0.02" sh -c "$CHAIN"`,
	"chain of 100 ms":   `PAUSE="sleep 0.1" timeout 100 sh -c "$CHAIN"`,
	"chain in session":  `PAUSE=: setsid sh -c "$CHAIN"`,
	"chain of sessions": `sh -c "$SESSIONS"`,
}

// Each process in a chain starts the next and exits.
var workEnv = []string{
	`WORK=until [ -e "$GATE" ]; do sleep 0.01; done`,
	`CHAIN=link() { [ -e "$GATE" ] && exit; $PAUSE; link & exit; }; link`,
	`SESSIONS=[ -e "$GATE" ] || setsid sh -c "$SESSIONS" &`,
}

// An overlapDrill runs pairs of commands with the same lock. The first is disturbed. Each command
// also holds a kernel lock, which lasts as long as its last process. The second command reports an
// overlap if it finds that the kernel lock is held.
type overlapDrill struct {
	t        *testing.T
	url      string
	dir      string
	ttl      time.Duration
	long     bool
	pairs    atomic.Int64
	overlaps sync.Map // a pair's name to its disturbances

	mu   sync.Mutex
	done map[string]int // how often each thing was done
}

// A drillStore is a store for the drill.
type drillStore struct {
	url     string
	restart func() error // kills the server and starts it again, with its data; nil: no server
}

// drillStores start the drill's stores.
var drillStores = map[string]func(t *testing.T) drillStore{
	"redis": func(t *testing.T) drillStore {
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		return drillStore{server.URL(), server.Restart}
	},
	"local": func(t *testing.T) drillStore {
		return drillStore{url: "local:" + filepath.Join(t.TempDir(), "locks.db")}
	},
	"postgres": func(t *testing.T) drillStore {
		if !redistest.Long() {
			t.Skip("set DIBS_LONG=1")
		}
		server, err := pgtest.Start()
		if errors.Is(err, pgtest.ErrNoServer) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		begin(t, server.URL(), "migrate").wantCode(0)
		return drillStore{server.URL(), func() error { server.Kill(); return server.Restart() }}
	},
}

// TestNoOverlap disturbs runs at random moments. It kills, stops and terminates dibs, the watchdog
// and the command's processes, and restarts the server. No command should begin before the previous
// command's last process is dead. It does not kill both dibs and the watchdog in a run: then
// nothing would be left to kill the command's processes.
//
// With DIBS_LONG=1 it takes 300 s for each store, or longer: until 2,000 runs have ended.
func TestNoOverlap(t *testing.T) {
	t.Parallel()
	for name, start := range drillStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drillOverlaps(t, start(t))
		})
	}
}

func drillOverlaps(t *testing.T, store drillStore) {
	const lanes = 3
	last, pairs := 8*time.Second, int64(0)
	if redistest.Long() {
		last, pairs = 300*time.Second, 1000
	}
	d := &overlapDrill{t: t, url: store.url, dir: t.TempDir(), ttl: 3 * time.Second, long: redistest.Long(), done: make(map[string]int)}
	end := time.Now().Add(last)
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for time.Now().Before(end) || d.pairs.Load() < pairs {
				d.pair()
			}
		})
	}
	over := make(chan struct{})
	restarts := make(chan struct{})
	go func() {
		defer close(restarts)
		d.restartOften(store, over)
	}()
	all.Wait()
	close(over)
	<-restarts
	overlaps := 0
	d.overlaps.Range(func(name, done any) bool {
		overlaps++
		t.Errorf("overlap of %s, after %s", name, done)
		return true
	})
	t.Logf("FIGURE %d runs of commands in %d pairs, %d overlaps: %s", 2*d.pairs.Load(), d.pairs.Load(), overlaps, d.summary())
}

// restartOften restarts a store's server every 2 to 6 s.
func (d *overlapDrill) restartOften(store drillStore, over <-chan struct{}) {
	for store.restart != nil {
		select {
		case <-over:
			return
		case <-time.After(2*time.Second + time.Duration(rand.IntN(4000))*time.Millisecond):
		}
		if err := store.restart(); err != nil {
			d.t.Error(err)
			return
		}
		d.count("restart of the store")
	}
}

// count counts an action in the drill.
func (d *overlapDrill) count(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done[what]++
}

func (d *overlapDrill) summary() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(d.done)) {
		all = append(all, fmt.Sprintf("%d × %s", d.done[what], what))
	}
	return strings.Join(all, ", ")
}

// pair runs two commands with the same name and disturbs the first.
func (d *overlapDrill) pair() {
	kind := randomKey(works)
	d.count("work " + kind)
	name := fmt.Sprintf("job%d", d.pairs.Add(1))
	env := append([]string{
		"LOCK=" + filepath.Join(d.dir, name), "GATE=" + filepath.Join(d.dir, name+".gate"), "LOG=" + filepath.Join(d.dir, name+".log"),
	}, workEnv...)
	const enter = `exec 9>>"$LOCK"; flock -n 9 || echo overlap >>"$LOG"; `
	first := d.begin(env, name, enter+`: >"$LOCK.in"; `+works[kind])
	defer os.WriteFile(filepath.Join(d.dir, name+".gate"), nil, 0o600)
	d.await(filepath.Join(d.dir, name+".in"), first)
	second := d.begin(env, name, enter)
	pause(150)
	done := d.disturb(first.cmd.Process.Pid)
	pause(400) // in which an early release would show
	_ = os.WriteFile(filepath.Join(d.dir, name+".gate"), nil, 0o600)
	d.wait(first, name, kind, done)
	d.wait(second, name, kind, done)
	if text, _ := os.ReadFile(filepath.Join(d.dir, name+".log")); len(text) > 0 {
		d.overlaps.Store(name+": "+kind, done)
	}
}

// pause waits for a random number of milliseconds: the drill acts at any moment.
func pause(most int) { time.Sleep(time.Duration(rand.IntN(most)) * time.Millisecond) }

func randomKey(m map[string]string) string {
	n := rand.IntN(len(m))
	for key := range m {
		if n == 0 {
			return key
		}
		n--
	}
	panic("unreachable")
}

// A drillRun is a dibs process in the drill.
type drillRun struct {
	cmd    *exec.Cmd
	output buffer
	ended  chan struct{}
}

func (d *overlapDrill) begin(env []string, name, script string) *drillRun {
	r := &drillRun{cmd: exec.Command(os.Args[0], "run", "--ttl", d.ttl.String(), name, "--", "bash", "-c", script), ended: make(chan struct{})}
	r.cmd.Args[0] = "dibs"
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "DIBS_URL=" + d.url, longTimeout, noRaceSleep}, env...)
	r.cmd.Stderr = &r.output
	r.cmd.WaitDelay = time.Millisecond // a killed dibs' processes have its stderr open
	if err := r.cmd.Start(); err != nil {
		d.t.Error(err)
		close(r.ended)
		return r
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	return r
}

// await waits until a file exists or the run ends.
func (d *overlapDrill) await(file string, r *drillRun) {
	ctx, cancel := context.WithTimeout(d.t.Context(), testTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-r.ended:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	d.t.Errorf("no file %s: %s", file, &r.output)
}

func (d *overlapDrill) wait(r *drillRun, name, kind, done string) {
	select {
	case <-r.ended:
	case <-time.After(testTimeout):
		d.t.Errorf("%s: %s, after %s: dibs does not end: %s", name, kind, done, &r.output)
		_ = r.cmd.Process.Kill()
	}
}

// disturb does one thing to a run, at times two or three, and returns their description.
func (d *overlapDrill) disturb(dibs int) (done string) {
	watchdog := first(childrenOf(dibs))
	command := first(childrenOf(watchdog))
	do := func(what string, pid int, s syscall.Signal) {
		if pid > 1 && syscall.Kill(pid, s) == nil {
			act := unix.SignalName(s) + " of " + what
			done += " " + act + ";"
			d.count(act)
		}
	}
	doGrandchild := func(s syscall.Signal) { do("a grandchild", grandchildOf(watchdog, command), s) }
	ends := []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}
	end := ends[rand.IntN(len(ends))]
	switch rand.IntN(12) {
	case 0, 1:
		do("the command", command, end)
	case 2, 3:
		for range 1 + rand.IntN(3) {
			doGrandchild(end)
			pause(20)
		}
	case 4:
		do("the command", command, end)
		pause(50)
		do("dibs", dibs, end)
	case 5:
		doGrandchild(syscall.SIGSTOP)
		pause(50)
		do("dibs", dibs, end)
	case 6:
		do("the command", command, syscall.SIGSTOP)
		pause(50)
		do("dibs", dibs, end)
	case 7:
		do("dibs", dibs, end)
	case 8:
		do("the watchdog", watchdog, syscall.SIGSTOP)
		pause(50)
		do("the command", command, end)
	case 9:
		do("the watchdog", watchdog, syscall.SIGKILL)
	case 10:
		do("the watchdog", watchdog, syscall.SIGTERM)
		pause(50)
		do("the command", command, end)
	case 11:
		do("dibs", dibs, syscall.SIGSTOP)
		doGrandchild(end)
		pause(300)
		if d.long {
			time.Sleep(time.Duration(rand.IntN(2)) * d.ttl) // the lock is lost
		}
		do("dibs", dibs, syscall.SIGCONT)
	}
	return done
}

// grandchildOf returns a random descendant of the watchdog but the command itself, or 0.
func grandchildOf(watchdog, command int) int {
	all := slices.DeleteFunc(descendantsOf(watchdog), func(pid int) bool { return pid == command })
	if len(all) == 0 {
		return 0
	}
	return all[rand.IntN(len(all))]
}

func first(pids []int) int {
	if len(pids) == 0 {
		return 0
	}
	return pids[0]
}

// childrenOf returns a process's children, oldest first.
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range bytes.Fields(text) {
			n, _ := strconv.Atoi(string(field))
			children = append(children, n)
		}
	}
	return children
}

func descendantsOf(pid int) (all []int) {
	for _, child := range childrenOf(pid) {
		all = append(append(all, child), descendantsOf(child)...)
	}
	return all
}
