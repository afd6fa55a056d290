package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// A fakeLease is a lease that a test ends.
type fakeLease struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	deadline time.Time
	err      error
}

func newFakeLease(t *testing.T, left time.Duration) *fakeLease {
	l := &fakeLease{deadline: time.Now().Add(left)}
	l.ctx, l.cancel = context.WithCancel(t.Context())
	return l
}

func (l *fakeLease) Context() context.Context { return l.ctx }

func (l *fakeLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *fakeLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *fakeLease) setDeadline(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = at
}

func (l *fakeLease) lose(reason dibs.Reason) {
	l.mu.Lock()
	l.err = &dibs.LostError{Name: "job", Reason: reason}
	l.mu.Unlock()
	l.cancel()
}

// A testRun is a Run with a shell script. It records the reports.
type testRun struct {
	t       *testing.T
	lease   *fakeLease
	rules   Rules
	signals chan os.Signal
	dir     string // the script's working directory: $0 is its name

	watchdog  *Watchdog
	delay     func(pid int) // called in Started, which delays the supervisor
	started   func()        // called when the script wrote the file "ready"
	pid       int
	forwarded []syscall.Signal
	lost      []error
	leftover  []int
	refused   []int
	ended     []End
}

func newTestRun(t *testing.T) *testRun {
	return &testRun{
		t: t, lease: newFakeLease(t, time.Hour), signals: make(chan os.Signal, 8), dir: t.TempDir(), delay: func(int) {}, started: func() {},
		rules: Rules{KillAfter: 300 * time.Millisecond, OnLost: LossAction{Signal: syscall.SIGTERM}, TTL: time.Hour},
	}
}

func (r *testRun) Started(pid int) {
	r.pid = pid
	r.delay(pid)
	go func() {
		for end := time.Now().Add(testTimeout); r.read("ready") == "" && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		r.started()
	}()
}

func (r *testRun) Forwarded(s syscall.Signal) { r.forwarded = append(r.forwarded, s) }
func (r *testRun) Ended(end End)              { r.ended = append(r.ended, end) }
func (r *testRun) Refused(pid int)            { r.refused = append(r.refused, pid) }
func (r *testRun) Lost(reason error)          { r.lost = append(r.lost, reason) }

func (r *testRun) Leftover(group int) {
	r.leftover = append(r.leftover, group)
	r.openGate()
}

// openGate creates the file "gate". On failure, the script does not end.
func (r *testRun) openGate() { _ = os.WriteFile(filepath.Join(r.dir, "gate"), nil, 0o600) }

// read returns the content of a file written by the script, or "".
func (r *testRun) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(r.dir, name))
	return strings.TrimSpace(string(text))
}

// run runs a script, which begins by writing the file "ready" after its traps.
func (r *testRun) run(script string) (code int, err error) {
	r.t.Helper()
	command, err := Find([]string{"sh", "-c", `cd "$0"; ` + script, r.dir}, []string{"PATH=" + os.Getenv("PATH")})
	if err != nil {
		r.t.Fatal(err)
	}
	r.watchdog = StartWatchdog(r.signals)
	defer r.watchdog.Stop()
	code, err = Run(r.lease, command, r.rules, Caller{
		Watchdog: r.watchdog, Reporter: r, NotRenewed: func() error { return errNotRenewed },
	})
	if r.watchdog.process.alive() {
		r.t.Error("the watchdog process is alive after Run")
	}
	return code, err
}

var errNotRenewed = errors.New("not renewed")

func (r *testRun) wantAsked(what string) {
	r.t.Helper()
	if have := r.read("asked"); have != what {
		r.t.Errorf("the script was asked to end with %q, want %q", have, what)
	}
}

// patient is a script that waits and records the signal that asks it to end.
const patient = `for s in TERM USR1; do trap "echo $s >>asked; exit 3" $s; done; echo 1 >ready; while :; do sleep 0.01; done`

// stubborn is the same, but does not end.
const stubborn = `for s in TERM USR1; do trap "echo $s >>asked" $s; done; echo 1 >ready; while :; do sleep 0.01; done`

func TestRunReturnsTheCode(t *testing.T) {
	r := newTestRun(t)
	code, err := r.run("exit 7")
	if code != 7 || err != nil || r.pid == 0 || len(r.lost)+len(r.leftover) > 0 {
		t.Errorf("have %d, %v, %+v", code, err, r)
	}
	code, err = newTestRun(t).run("kill -HUP $$")
	if code != CodeSignal+int(syscall.SIGHUP) || err != nil {
		t.Errorf("a signal: have %d, %v", code, err)
	}
}

func TestRunForwardsSignals(t *testing.T) {
	r := newTestRun(t)
	r.started = func() { r.signals <- syscall.SIGUSR1 }
	code, err := r.run(patient)
	if code != 3 || err != nil || len(r.forwarded) != 1 || r.forwarded[0] != syscall.SIGUSR1 {
		t.Errorf("have %d, %v, forwarded %v", code, err, r.forwarded)
	}
	r.wantAsked("USR1")
}

// A revoked lease leaves the command the time KillAfter.
func TestRunEndsARevokedCommand(t *testing.T) {
	r := newTestRun(t)
	r.rules.OnLost.Signal, r.rules.KillAfter = syscall.SIGUSR1, testTimeout
	r.started = func() { r.lease.lose(dibs.ReasonRevoked) }
	code, err := r.run(patient)
	if code != 3 || !errors.Is(err, dibs.ErrLost) || len(r.lost) != 1 {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
	r.wantAsked("USR1")

	r = newTestRun(t)
	r.rules.KillAfter = time.Second
	r.started = func() { r.lease.lose(dibs.ReasonMissing) }
	began := time.Now()
	code, err = r.run(stubborn)
	if code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, dibs.ErrLost) || time.Since(began) < r.rules.KillAfter {
		t.Errorf("a command that does not end: have %d, %v after %v", code, err, time.Since(began))
	}
	r.wantAsked("TERM")
}

// An expired lease leaves no time.
func TestRunKillsACommandWithoutALease(t *testing.T) {
	r := newTestRun(t)
	r.rules.KillAfter = testTimeout
	r.started = func() { r.lease.lose(dibs.ReasonExpired) }
	began := time.Now()
	code, err := r.run(stubborn)
	if code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, dibs.ErrLost) || time.Since(began) >= testTimeout {
		t.Errorf("have %d, %v after %v", code, err, time.Since(began))
	}
}

// Without renewals, the command is asked to end when KillAfter is left, and dead before the
// deadline.
func TestRunEndsACommandBeforeTheDeadline(t *testing.T) {
	const ttl = 2 * time.Second
	r := newTestRun(t)
	r.rules.TTL, r.rules.KillAfter = ttl, ttl/2
	r.started = func() { r.lease.setDeadline(time.Now().Add(ttl)) }
	code, err := r.run(stubborn)
	if code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, errNotRenewed) || len(r.lost) != 1 || !errors.Is(r.lost[0], errNotRenewed) {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
	r.wantAsked("TERM")
}

// The watchdog should kill the command at the deadline if the supervisor does not run. This is a
// loss, even if the lease was renewed in time.
func TestRunIsLate(t *testing.T) {
	r := newTestRun(t)
	r.delay = func(pid int) {
		r.watchdog.process.extend(time.Now(), r.rules.TTL)
		for end := time.Now().Add(testTimeout); alive(strconv.Itoa(pid)) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	code, err := r.run(stubborn)
	if code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, ErrLate) || !errors.Is(err, dibs.ErrLost) || len(r.lost) != 1 {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
}

// A command killed from outside does not count as a loss.
func TestRunOfAKilledCommand(t *testing.T) {
	r := newTestRun(t)
	code, err := r.run("kill -KILL $$")
	if code != CodeSignal+int(syscall.SIGKILL) || err != nil || len(r.lost) > 0 {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
}

// If the watchdog process is killed, Run ends the command: nothing would, if dibs were
// killed as well.
func TestRunWithoutItsWatchdog(t *testing.T) {
	r := newTestRun(t)
	r.started = func() { _ = syscall.Kill(r.watchdog.process.pid, syscall.SIGKILL) }
	code, err := r.run(stubborn)
	if code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, errWatchdogKilled) || len(r.lost) != 1 {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
}

func TestRunEndsACommandAfterMaxHold(t *testing.T) {
	r := newTestRun(t)
	r.rules.MaxHold = 100 * time.Millisecond
	r.rules.OnLost.Signal = syscall.SIGUSR1 // which is for a loss only
	code, err := r.run(stubborn)
	if code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, ErrMaxHold) || len(r.lost) > 0 {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
	if have := r.read("asked"); have != "TERM" && have != "" { // the machine may be too slow for the trap
		t.Errorf("asked to end with %s", have)
	}
}

// With LossAction.Warn a loss is reported once, and the command goes on.
func TestRunWarns(t *testing.T) {
	r := newTestRun(t)
	r.rules.OnLost = LossAction{Warn: true}
	r.rules.KillAfter = time.Millisecond
	r.lease.deadline = time.Now().Add(10 * time.Millisecond) // which the watchdog must not enforce
	r.started = func() {
		r.lease.lose(dibs.ReasonMissing)
		time.AfterFunc(300*time.Millisecond, r.openGate)
	}
	code, err := r.run(`echo 1 >ready; until [ -e gate ]; do sleep 0.01; done; exit 5`)
	if code != 5 || !errors.Is(err, dibs.ErrLost) || len(r.lost) != 1 {
		t.Errorf("have %d, %v, reported %v", code, err, r.lost)
	}
}

// MaxHold also applies with LossAction.Warn.
func TestRunWarnsOfALossOnly(t *testing.T) {
	r := newTestRun(t)
	r.rules.OnLost = LossAction{Warn: true}
	r.rules.MaxHold = 100 * time.Millisecond
	if code, err := r.run(stubborn); code != CodeSignal+int(syscall.SIGKILL) || !errors.Is(err, ErrMaxHold) {
		t.Errorf("have %d, %v", code, err)
	}
}

// A stopped command is continued, so that it can handle the signal that asks it to end.
func TestRunContinuesAStoppedCommand(t *testing.T) {
	r := newTestRun(t)
	r.rules.KillAfter = testTimeout
	r.started = func() {
		for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", r.read("ready"))); strings.Contains(string(stat), ") T ") {
				break
			}
		}
		r.lease.lose(dibs.ReasonRevoked)
	}
	code, err := r.run(`trap 'exit 3' TERM; echo $$ >ready; kill -STOP $$; while :; do sleep 0.01; done`)
	if code != 3 || !errors.Is(err, dibs.ErrLost) {
		t.Errorf("have %d, %v", code, err)
	}
}

// Run should wait for the processes in the command's group, and report them after a second.
func TestRunReportsLeftovers(t *testing.T) {
	r := newTestRun(t)
	began := time.Now()
	code, err := r.run(`until [ -e gate ]; do sleep 0.01; done & exit 4`)
	if code != 4 || err != nil || len(r.leftover) != 1 || r.leftover[0] != r.pid || time.Since(began) < time.Second {
		t.Errorf("have %d, %v, reported %v after %v", code, err, r.leftover, time.Since(began))
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lease := newFakeLease(t, time.Hour)
	for _, test := range []struct {
		what string
		argv []string
		code int
		text string
	}{
		{"no such command", []string{"no-such-command"}, CodeNotFound, `exec: "no-such-command": executable file not found in $PATH`},
		{"a command line", []string{"a | b"}, CodeNotFound, "to run a shell command line, use -c"},
		{"no interpreter", []string{file("a", "#!/no/such/file\n", 0o700)}, CodeNotFound, "no such file"},
		{"a directory as interpreter", []string{file("b", "#!/usr\n", 0o700)}, CodeCannotRun, "permission denied"},
	} {
		command, err := Find(test.argv, nil)
		if err == nil {
			watchdog := StartWatchdog(make(chan os.Signal))
			_, err = Run(lease, command, newTestRun(t).rules, Caller{Watchdog: watchdog, Reporter: newTestRun(t)})
			watchdog.Stop()
		}
		var failed *StartError
		if !errors.As(err, &failed) || failed.Code != test.code || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: want %d, have %v", test.what, test.code, err)
		}
	}
}

// A text file without an interpreter line runs in a shell.
func TestTextFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("exit $1"), 0o700); err != nil {
		t.Fatal(err)
	}
	command, err := Find([]string{path, "9"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	watchdog := StartWatchdog(make(chan os.Signal))
	defer watchdog.Stop()
	r := newTestRun(t)
	if code, err := Run(r.lease, command, r.rules, Caller{Watchdog: watchdog, Reporter: r}); code != 9 || err != nil {
		t.Errorf("have %d, %v", code, err)
	}
}

func TestWithEnv(t *testing.T) {
	c := Command{Env: []string{"A=1", "B=2", "AB=3"}}.WithEnv("A=4", "C=5")
	if have := strings.Join(c.Env, " "); have != "B=2 AB=3 A=4 C=5" {
		t.Errorf("have %s", have)
	}
}
