//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
	"github.com/redis/go-redis/v9"
	"golang.org/x/term"
)

// A display is a terminal with support for top's sequences only. It records all others, so that the
// test can detect a control sequence in a name.
type display struct {
	mu        sync.Mutex
	cells     [][]rune
	row, col  int
	alternate bool
	hidden    bool // the cursor
	coloured  bool
	strange   []string
	rest      string // beginning of an incomplete sequence
}

func newDisplay(width, height int) *display {
	s := new(display)
	s.resize(width, height)
	return s
}

func (s *display) resize(width, height int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells, s.row, s.col = make([][]rune, height), 0, 0
	for i := range s.cells {
		s.cells[i] = []rune(strings.Repeat(" ", width))
	}
}

var sequence = regexp.MustCompile(`^\x1b\[([?0-9;]*)([a-zA-Z])`)

func (s *display) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.rest + string(p)
	for text != "" {
		if m := sequence.FindStringSubmatch(text); m != nil {
			s.interpret(m[1], m[2])
			text = text[len(m[0]):]
			continue
		}
		if text[0] == '\x1b' && len(text) < 8 || len(text) < 3 && text[0] >= 0x80 {
			break
		}
		r := []rune(text[:min(4, len(text))])[0]
		s.show(r)
		text = text[len(string(r)):]
	}
	s.rest = text
	return len(p), nil
}

func (s *display) interpret(parameters, command string) {
	switch parameters + command {
	case "H":
		s.row, s.col = 0, 0
		if !s.alternate {
			s.strange = append(s.strange, "a frame on the normal screen")
		}
	case "K":
		s.clear(s.row, s.col)
	case "J":
		s.clear(s.row, s.col)
		for row := s.row + 1; row < len(s.cells); row++ {
			s.clear(row, 0)
		}
	case "?1049h", "?1049l":
		s.alternate = command == "h"
	case "?25h", "?25l":
		s.hidden = command == "l"
	case "1;31m", "33m":
		s.coloured = true
	case "?7h", "?7l", "m", "1m", "7m", "31m":
	default:
		s.strange = append(s.strange, parameters+command)
	}
}

// clear erases a line from a column on. Behind a full line, the cursor is on its last
// character.
func (s *display) clear(row, from int) {
	for col := min(from, len(s.cells[row])-1); col < len(s.cells[row]); col++ {
		s.cells[row][col] = ' '
	}
}

func (s *display) show(r rune) {
	switch {
	case r == '\r':
		s.col = 0
	case r == '\n':
		s.row = min(s.row+1, len(s.cells)-1)
	case r < ' ' || r >= 0x7f && r < 0xa0:
		s.strange = append(s.strange, fmt.Sprintf("%q", r))
	case s.col < len(s.cells[s.row]):
		s.cells[s.row][s.col] = r
		s.col++
	}
}

func (s *display) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := make([]string, len(s.cells))
	for i, cells := range s.cells {
		lines[i] = strings.TrimRight(string(cells), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// await waits until the screen matches.
func (s *display) await(t *testing.T, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile("(?m)" + pattern)
	for end := time.Now().Add(testTimeout); !wanted.MatchString(s.String()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the screen does not show %s:\n%s", pattern, s)
		}
	}
}

// restored checks that the terminal is in its initial state.
func (s *display) restored(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alternate || s.hidden {
		t.Errorf("alternate screen: %v, cursor hidden: %v; want neither", s.alternate, s.hidden)
	}
	if len(s.strange) > 0 {
		t.Errorf("unexpected control sequences: %q", s.strange)
	}
}

// A ttySession is dibs on a terminal.
type ttySession struct {
	*display
	tty    *os.File // the program's terminal end
	before *term.State
	cmd    *exec.Cmd
	drawn  chan struct{} // closed when all output was read
}

func startTop(t *testing.T, url string, width, height int) *ttySession {
	t.Helper()
	return startOn(t, width, height, []string{"DIBS_URL=" + url, "TERM=xterm"}, "top", "--every", "20ms")
}

func startOn(t *testing.T, width, height int, env []string, args ...string) *ttySession {
	t.Helper()
	return startProgram(t, width, height, env, "dibs", args...)
}

func startProgram(t *testing.T, width, height int, env []string, program string, args ...string) *ttySession {
	t.Helper()
	tty, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	v := &ttySession{display: newDisplay(width, height), tty: tty, drawn: make(chan struct{})}
	t.Cleanup(func() { tty.Close() })
	v.size(t, width, height)
	if v.before, err = term.GetState(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	v.cmd = exec.Command(program, args...)
	v.cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = theirs, theirs, theirs
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(v.drawn)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf) // EIO when the program closed its end
			_, _ = v.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return v
}

func (v *ttySession) size(t *testing.T, width, height int) {
	t.Helper()
	v.resize(width, height)
	if err := pty.Setsize(v.tty, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		t.Fatal(err)
	}
}

func (v *ttySession) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := v.tty.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// ends waits until dibs exits, and wants an exit code and a restored terminal.
func (v *ttySession) ends(t *testing.T, code int) {
	t.Helper()
	timer := time.AfterFunc(testTimeout, func() { _ = v.cmd.Process.Kill() })
	defer timer.Stop()
	_ = v.cmd.Wait() // the process state contains the exit code
	if have := supervise.ExitCode(v.cmd.ProcessState.Sys().(syscall.WaitStatus)); have != code {
		t.Errorf("exit code %d, want %d\n%s", have, code, v.display)
	}
	after, err := term.GetState(int(v.tty.Fd()))
	if err != nil || !reflect.DeepEqual(v.before, after) {
		t.Errorf("the terminal was not restored: %v", err)
	}
	<-v.drawn
	v.restored(t)
}

func TestTop(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb), dibs.Timeout(10*time.Second))
	defer locks.Close()
	hold := func(name, label string) *dibs.Lease {
		t.Helper()
		lease, err := locks.Mutex(name, dibs.Label(label)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	v := startTop(t, server.URL(), 100, 24)
	v.await(t, `^nothing is held$`)
	v.await(t, `^held 0   waiting 0   longest wait 0ms   never expiring 0   sorted by worst$`)

	busy := hold("busy", "b")
	v.await(t, `^> busy `) // the selection stays on its name
	hold("calm", "c")
	waits, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _, _ = locks.Mutex("busy", dibs.Label("impatient")).Lock(waits) }()
	server.MustCmd(t, "SET", "lock:endless\x1b[2J", "secret")
	v.await(t, `^held 3   waiting 1   longest wait \S+   never expiring 1   sorted by worst$`)
	v.await(t, `^  NAME +KIND +HOLDER +TTL +HELD +WAIT +LONGEST +FENCE$`)
	v.await(t, `^> busy +mutex +\S+ \(b\) +\S+s +\S+ +1 +\S+s +\S+\n  "endless\\x1b\[2J" +lock \(string\) +sec… +never +- +0 +- +-\n  calm `)
	v.await(t, `(?s)^busy is held: mutex, by one holder$.*^1 waiter in queue order$.*^1  \S+ \(impatient\)`)
	v.await(t, `^q quit  j k move  space b page  g G ends  s sort$`)
	t.Logf("%s", v.display)

	v.press(t, "j")
	v.await(t, `^> "endless`)
	v.press(t, "\x1b[B")
	v.await(t, `^> calm`)
	v.press(t, "j") // calm is the last row
	v.press(t, "k\x1bOA")
	v.await(t, `^> busy`)
	v.press(t, "G")
	v.await(t, `^> calm`)
	v.press(t, "g")
	v.await(t, `^> busy`)
	v.press(t, "\x1b[6~")
	v.await(t, `^> calm`)
	v.press(t, "b")
	v.await(t, `^> busy`)
	v.press(t, "s")
	v.await(t, `sorted by name$`)
	v.await(t, `(?s)^> busy.*^  calm.*^  "endless`)
	v.press(t, "s")
	v.await(t, `sorted by ttl$`)
	v.press(t, "ss")
	v.await(t, `sorted by held$`)
	v.press(t, "s")
	v.await(t, `sorted by worst$`)

	v.size(t, 40, 8)
	v.await(t, `^  NAME +TTL +WAIT +LONGEST\n> busy +\S+ +1 +\S+s\n  "endless[^\n]*\n  calm[^\n]*\nq quit`)
	v.size(t, 60, 6)
	v.await(t, `^  NAME[^\n]*\n> busy[^\n]*\nq quit`)
	v.press(t, "jj")
	v.await(t, `^  NAME[^\n]*\n> calm[^\n]*\nq quit`)
	v.press(t, "kk")
	v.size(t, 100, 24)

	busy.Unlock()
	v.await(t, `^held 3   waiting 0 `)
	server.Kill()
	v.await(t, `^the store does not answer, showing the last state: `)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	v.await(t, `^nothing is held$`)
	v.press(t, "q")
	v.ends(t, 0)
}

// A name may have 512 characters. Its other columns, and the other rows, stay visible.
func TestLongNames(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb), dibs.Timeout(10*time.Second))
	defer locks.Close()
	long := "begin" + strings.Repeat("x", 500) + "end"
	for _, name := range []string{long, "short", strings.Repeat("世", 150)} {
		if _, err := locks.Mutex(name, dibs.Label(strings.Repeat("l", 60))).Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waits, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _, _ = locks.Mutex(long).Lock(waits) }()

	v := startTop(t, server.URL(), 80, 24)
	v.await(t, `^  NAME +HOLDER +TTL +(HELD +)?WAIT +LONGEST$`)
	v.await(t, `^> beginx+…x+end +\S+:\d+ \(l+….*l\) +\d+s +(\S+ +)?1 +\S+s`)
	v.await(t, `^  short +\S.*l\) +\d+s +(\S+ +)?0 +-`)
	const full = `^> beginx+…x+end +\S+:\d+ \(l+….*l\) +\d+s +(\S+ +)?1 +\S+s$`
	for _, width := range []int{79, 80, 81, 82} { // some of these lines end at the screen's edge
		v.size(t, width, 24)
		v.await(t, full)
	}
	v.size(t, 40, 24)
	v.await(t, `^> begi[^ ]*…x+end +\d+s +1 +\S+s$`)
	v.await(t, `^  short +\d+s +0 +-$`)
	v.size(t, 20, 24) // narrower than the table can be: lines are cut
	v.await(t, `^> beg[ix…]+end  \d+`)
	v.press(t, "q")
	v.ends(t, 0)

	env := []string{"DIBS_URL=" + server.URL(), "TERM=xterm"}
	for _, width := range []int{80, 60, 120} {
		ls := startOn(t, width, 24, env, "ls")
		ls.ends(t, 0)
		for _, pattern := range []string{`^NAME +.*TTL +.*WAIT`, `^beginx+…x+end .* \d+s .*1`, `^short .*\d+s .*0`, `^世+…世+ .*\d+s .*0`} {
			if !regexp.MustCompile("(?m)" + pattern).MatchString(ls.String()) {
				t.Errorf("%d columns: want %s, have\n%s", width, pattern, ls)
			}
		}
		if lines := strings.Count(strings.TrimRight(ls.String(), "\n"), "\n") + 1; lines != 4 {
			t.Errorf("%d columns: want 4 lines, have\n%s", width, ls)
		}
	}
	show := startOn(t, 80, 30, env, "show", "short")
	show.ends(t, 0)
	if text := show.String(); !regexp.MustCompile(`(?m)^HOLDER +TTL .*WEIGHT`).MatchString(text) || !regexp.MustCompile(`(?m)^\S+:\d+ \(l.*l\) +\d+s`).MatchString(text) {
		t.Errorf("have\n%s", text)
	}

	// If stdout is not a terminal, names are not shortened.
	all := exec.Command("dibs", "ls", "--url", server.URL())
	text, err := all.CombinedOutput()
	if err != nil || !strings.Contains(string(text), long) {
		t.Errorf("want the whole name, have %s, %v", text, err)
	}
}

// A resized window is drawn at once, and not with the next poll.
func TestTopIsResized(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	v := startOn(t, 80, 24, []string{"DIBS_URL=" + server.URL(), "TERM=xterm"}, "top", "--every", "1h")
	v.await(t, `^nothing is held$`)
	v.size(t, 60, 12)
	v.await(t, `^nothing is held$`)
	v.press(t, "q")
	v.ends(t, 0)
}

// ^Z restores the terminal and stops dibs and the script around it; a shell can continue
// them.
func TestTopIsSuspended(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for what, c := range map[string]struct {
		job  string
		stop func(v *ttySession, top int)
	}{
		"^Z":   {`sh -c "dibs top --every 20ms; exit"`, func(v *ttySession, _ int) { v.press(t, "\x1a") }},
		"TSTP": {"dibs top --every 20ms", func(_ *ttySession, top int) { _ = syscall.Kill(top, syscall.SIGTSTP) }},
	} {
		t.Run(what, func(t *testing.T) {
			gate := filepath.Join(t.TempDir(), "gate")
			v := startProgram(t, 80, 24, []string{"DIBS_URL=" + server.URL(), "TERM=xterm", "GATE=" + gate},
				"bash", "-mc", c.job+`; until [ -e "$GATE" ]; do sleep 0.01; done; fg >/dev/null`)
			v.await(t, `^nothing is held$`)
			all := descendantsOf(v.cmd.Process.Pid)
			top := all[len(all)-1]
			c.stop(v, top)
			eventually(t, "top has stopped and the terminal is restored", func() bool {
				now, err := term.GetState(int(v.tty.Fd()))
				return err == nil && reflect.DeepEqual(v.before, now) && !v.onAlternate() && processState(strconv.Itoa(top)) == "T"
			})
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "top is on the alternate screen again", v.onAlternate)
			v.press(t, "q")
			v.ends(t, 0)
		})
	}
}

// As a session leader, dibs has no shell that could continue it.
func TestTopIsNotSuspendedWithoutShell(t *testing.T) {
	t.Parallel()
	v := startTop(t, redistest.Start(t).URL(), 80, 24)
	v.await(t, `^nothing is held$`)
	v.press(t, "\x1a")
	_ = v.cmd.Process.Signal(syscall.SIGTSTP)
	v.press(t, "q")
	v.ends(t, 0)
}

func (s *display) onAlternate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alternate
}

func TestTopEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for what, c := range map[string]struct {
		end  func(v *ttySession)
		code int
	}{
		"^C":   {func(v *ttySession) { v.press(t, "\x03") }, 130},
		"TERM": {func(v *ttySession) { _ = v.cmd.Process.Signal(syscall.SIGTERM) }, 143},
		"HUP":  {func(v *ttySession) { _ = v.cmd.Process.Signal(syscall.SIGHUP) }, 129},
		"CONT": {func(v *ttySession) { _ = v.cmd.Process.Signal(syscall.SIGCONT); v.press(t, "q") }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			v := startTop(t, server.URL(), 80, 24)
			v.await(t, `^nothing is held$`)
			c.end(v)
			v.ends(t, c.code)
			if have := v.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled(); have != (c.code > supervise.CodeSignal) {
				t.Errorf("died of a signal: %v", have)
			}
		})
	}
}

// ^C at the confirmation ends unlock without an effect.
func TestUnlockInterrupted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "SET", "lock:job", "theirs", "EX", "600")
	v := startOn(t, 100, 24, []string{"DIBS_URL=" + server.URL()}, "unlock", "job", "--force", "--reason", "r")
	v.await(t, `type the name to end the foreign lock and delete the key lock:job:$`)
	v.press(t, "\x03")
	v.ends(t, 130)
	if have := server.MustCmd(t, "GET", "lock:job"); have != "theirs" {
		t.Errorf("want the lock unchanged, have %v", have)
	}
}

// A foreign lock acquired after the confirmation was shown should not be deleted.
func TestUnlockDeletesNoNewerForeignLock(t *testing.T) {
	t.Parallel()
	const shown, newer = "6afafe03-cf00-4f8a-9c5e-3d8f1b2a7c44", "8743c9c0-0795-4907-87fd-6c719a6b4586"
	server := redistest.Start(t)
	server.MustCmd(t, "SET", "lock:job", shown, "EX", "600")
	v := startOn(t, 100, 24, []string{"DIBS_URL=" + server.URL()}, "unlock", "job", "--force", "--reason", "r")
	v.await(t, `type the name to end the foreign lock and delete the key lock:job:`)
	server.MustCmd(t, "SET", "lock:job", newer, "EX", "600")
	v.press(t, "job\n")
	v.ends(t, exitBusy)
	v.await(t, `^dibs: job has changed since it was shown, and is held by 8743c9c0… now: nothing was done$`)
	if have := server.MustCmd(t, "GET", "lock:job"); have != newer {
		t.Errorf("want the newer lock, have %v", have)
	}
}

// A lease acquired after the confirmation was shown should not be revoked.
func TestUnlockRevokesNothingNewer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := dibs.New(goredisstore.New(redis.NewClient(&redis.Options{Addr: server.Addr()})), dibs.Timeout(10*time.Second))
	defer locks.Close()
	for _, fenceKnown := range []bool{false, true} {
		lock := func() *dibs.Lease {
			lease, err := locks.Mutex("job").Lock(t.Context())
			if err == nil && fenceKnown {
				err = lease.Extend(t.Context(), time.Minute)
			}
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		old := lock()
		v := startOn(t, 200, 24, []string{"DIBS_URL=" + server.URL()}, "unlock", "job", "--force", "--reason", "r")
		v.await(t, `type the name to revoke the lease:$`)
		old.Unlock()
		newer := lock()
		v.press(t, "job\n")
		v.ends(t, exitBusy)
		v.await(t, `^dibs: job is held by .*: nothing was done$`)
		if err := newer.Unlock(); err != nil {
			t.Errorf("fence known %v: the newer lease was revoked: %v", fenceKnown, err)
		}
	}
}

func TestColours(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	for env, coloured := range map[string]bool{"TERM=xterm": true, "TERM=dumb": false, "NO_COLOR=1": false} {
		v := startOn(t, 100, 50, []string{"TERM=xterm", "DIBS_URL=" + server.URL(), env}, "doctor")
		v.ends(t, checkup.Critical.ExitCode())
		v.await(t, `^critical: eviction$`)
		if v.coloured != coloured {
			t.Errorf("%s: coloured %v, want %v", env, v.coloured, coloured)
		}
	}
}

// panicking is a store whose methods panic.
type panicking struct{ *driver.Full }

func (panicking) List(context.Context, string) ([]string, error)               { panic("broken") }
func (panicking) Inspect(context.Context, string) (driver.State, error)        { panic("broken") }
func (panicking) InspectAll(context.Context, []string) ([]driver.State, error) { panic("broken") }

func TestTopPanics(t *testing.T) {
	for _, glob := range []string{"*", "name"} {
		t.Run(glob, func(t *testing.T) { topPanics(t, glob) })
	}
}

func topPanics(t *testing.T, glob string) {
	tty, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	defer theirs.Close()
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	poller := watch.Poller{Store: panicking{driver.Complete(memstore.New())}, Timeout: time.Second}
	v := &screen{in: theirs, out: theirs}
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "broken\ngoroutine ") {
				t.Errorf("want the panic with its stack, have %s", text)
			}
		}()
		_ = v.use(func() error { return v.show(view.Board{Every: time.Second}, poller, glob) })
	}()
	after, err := term.GetState(int(tty.Fd()))
	if err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("the terminal was not restored: %v", err)
	}
}
