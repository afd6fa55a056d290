//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/pgtest"
)

// works are commands that work until the file $GATE exists, in processes of many kinds.
// Some of them exit before their work has ended.
var works = map[string]string{
	"itself":            `eval "$WORK"`,
	"child":             `sh -c "$WORK" & wait`,
	"left behind":       `sh -c "$WORK" &`,
	"timeout":           `timeout 100 sh -c "$WORK"; true`,
	"session":           `setsid -w sh -c "$WORK"; true`,
	"left in a session": `setsid sh -c "$WORK" &`,
	"job control":       `set -m; sh -c "$WORK" & wait`,
	"chain":             `PAUSE=: sh -c "$CHAIN"`,
	"chain of 1 ms":     `PAUSE="sleep 0.001" setsid sh -c "$CHAIN"`,
	"chain of 20 ms":    `PAUSE="sleep 0.02" sh -c "$CHAIN"`,
	"chain of 100 ms":   `PAUSE="sleep 0.1" timeout 100 sh -c "$CHAIN"`,
	"chain in session":  `PAUSE=: setsid sh -c "$CHAIN"`,
	"chain of sessions": `sh -c "$SESSIONS"`,
}

// Each process of a chain starts the next one and exits.
var workEnv = []string{
	`WORK=until [ -e "$GATE" ]; do sleep 0.01; done`,
	`CHAIN=link() { [ -e "$GATE" ] && exit; $PAUSE; link & exit; }; link`,
	`SESSIONS=[ -e "$GATE" ] || setsid sh -c "$SESSIONS" &`,
}

// An overlapDrill runs pairs of commands with one lock. The first one is disturbed. Each
// command also holds a lock of the kernel, which lasts as long as its last process. The
// second one reports an overlap if it finds that lock held.
type overlapDrill struct {
	t        *testing.T
	url      string
	dir      string
	ttl      time.Duration
	long     bool
	pairs    atomic.Int64
	overlaps sync.Map // name of a pair to what was done
}

// TestNoOverlap disturbs runs at random moments. It kills, stops and terminates dibs, the
// watchdog and processes of the command. No command may begin before the last process of
// the command before it is dead. It does not kill dibs and the watchdog of one run: then
// nothing is left that would kill the processes of the command.
func TestNoOverlap(t *testing.T) {
	long := os.Getenv("DIBS_LONG") == "1"
	if long {
		t.Run("postgres", func(t *testing.T) {
			server, err := pgtest.Start()
			if errors.Is(err, pgtest.ErrNoServer) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			migrated := begin(t, server.URL(), "migrate")
			migrated.wantCode(0)
			drillOverlaps(t, server.URL(), long)
		})
	}
	onEachStore(t, func(t *testing.T, s *testStore) { drillOverlaps(t, s.URL(), long) })
}

func drillOverlaps(t *testing.T, url string, long bool) {
	const lanes = 3
	last := 8 * time.Second
	if long {
		last = 300 * time.Second
	}
	d := &overlapDrill{t: t, url: url, dir: t.TempDir(), ttl: 3 * time.Second, long: long}
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for end := time.Now().Add(last); time.Now().Before(end); {
				d.pair()
			}
		})
	}
	all.Wait()
	d.overlaps.Range(func(name, done any) bool {
		t.Errorf("overlap of %s, after %s", name, done)
		return true
	})
	t.Logf("FIGURE %d pairs of commands", d.pairs.Load())
}

// pair runs two commands with one name and disturbs the first one.
func (d *overlapDrill) pair() {
	kind := randomKey(works)
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

// A drillRun is a process of dibs in the drill.
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
	r.cmd.WaitDelay = time.Millisecond // the processes of a killed dibs have its stderr open
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

// await waits until a file exists or the run has ended.
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

// disturb does one thing to a run, at times two, and says what.
func (d *overlapDrill) disturb(dibs int) (done string) {
	watchdog := first(childrenOf(dibs))
	command := first(childrenOf(watchdog))
	random := func() int {
		all := descendantsOf(watchdog)
		if len(all) == 0 {
			return 0
		}
		return all[rand.IntN(len(all))]
	}
	do := func(what string, pid int, s syscall.Signal) {
		done += fmt.Sprintf(" %v of %s;", s, what)
		if pid > 1 {
			_ = syscall.Kill(pid, s)
		}
	}
	ends := []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}
	end := ends[rand.IntN(len(ends))]
	switch rand.IntN(10) {
	case 0, 1:
		do("the command", command, end)
	case 2, 3:
		for range 1 + rand.IntN(3) {
			do("a process", random(), end)
			pause(20)
		}
	case 4:
		do("the command", command, end)
		pause(50)
		do("dibs", dibs, end)
	case 5:
		do("a process", random(), syscall.SIGSTOP)
		pause(50)
		do("dibs", dibs, end)
	case 6:
		do("dibs", dibs, end)
	case 7:
		do("the watchdog", watchdog, syscall.SIGSTOP)
		pause(50)
		do("the command", command, end)
	case 8:
		do("the watchdog", watchdog, syscall.SIGKILL)
	case 9:
		do("dibs", dibs, syscall.SIGSTOP)
		do("a process", random(), end)
		pause(300)
		if d.long {
			time.Sleep(time.Duration(rand.IntN(2)) * d.ttl) // the lock is lost
		}
		do("dibs", dibs, syscall.SIGCONT)
	}
	return done
}

func first(pids []int) int {
	if len(pids) == 0 {
		return 0
	}
	return pids[0]
}

// childrenOf returns the children of a process, oldest first.
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
