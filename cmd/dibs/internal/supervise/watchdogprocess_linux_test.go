package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The watchdog's clock should include suspend time. A time namespace simulates this: its boot clock
// is ahead of the monotonic clock.
func TestWatchdogCountsSuspension(t *testing.T) {
	t.Parallel()
	const slept = 1000 * time.Hour
	unshare := []string{"--time", "--boottime", fmt.Sprint(int(slept.Seconds())), "--fork", "--kill-child"}
	if err := exec.Command("unshare", append(unshare, "true")...).Run(); err != nil {
		t.Skip("no time namespaces here:", err)
	}
	in, pipe, err1 := os.Pipe()
	answers, out, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	files, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	p := exec.Command("unshare", append(unshare, os.Args[0], WatchdogArg, "3", "4", "5", "6")...)
	p.ExtraFiles = []*os.File{in, out, files, inherited}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	inherited.Close()
	defer func() {
		pipe.Close() // which ends the watchdog
		_ = p.Wait()
	}()
	lines := linesOf(answers)
	await := func(word string) string {
		select {
		case line := <-lines:
			rest, ok := strings.CutPrefix(line, word)
			if !ok {
				t.Fatalf("the watchdog answers %q, want %q", line, word)
			}
			return strings.TrimSpace(rest)
		case <-time.After(testTimeout):
			t.Fatalf("the watchdog does not answer %q", word)
		}
		return ""
	}
	await("ready")
	text, _ := json.Marshal(startRequest{Path: pathOf(t, "sleep"), Argv: rawTexts([]string{"sleep", "1000"})})
	fmt.Fprintf(pipe, "start %s\n", text)
	pid := await("started")
	fmt.Fprintf(pipe, "until %d\n", sinceBoot()+slept+200*time.Millisecond)
	await("changed")
	if alive(pid) {
		t.Error("the command is alive")
	}
}

// A watchdog process whose supervisor is dead should exit when its last child is dead, and not
// before. This test kills all its children, so it runs in its own process.
func TestWatchdogKillsBeforeItExits(t *testing.T) {
	if !inOwnProcess(t, os.Args[0]) {
		return
	}
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	files, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inherited.Close()
	w := &watchdogProcess{reaper: reaper{tree: &tree{root: os.Getpid(), pid: c.Process.Pid}, files: files}, out: -1, alarm: -1, killAt: never}
	w.parentDied()
	w.sweep(func(int) {})
	w.reportLeft()
	if w.done {
		t.Error("the watchdog process exits while it kills")
	}
	for end := time.Now().Add(testTimeout); !w.done && time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.reap(func(syscall.WaitStatus) {})
		w.reportLeft()
	}
	if !w.done || !w.noChild {
		t.Errorf("done %v, no child %v after the kill", w.done, w.noChild)
	}
}

// An alarm ends a poll.
func TestAlarm(t *testing.T) {
	t.Parallel()
	a := newAlarm()
	defer syscall.Close(int(a))
	for _, in := range []time.Duration{50 * time.Millisecond, 0, -time.Hour} {
		at := sinceBoot() + in
		a.set(at)
		fds := []unix.PollFd{{Fd: int32(a), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(testTimeout/time.Millisecond))
		for errors.Is(err, unix.EINTR) { // a signal from Go's scheduler, or the end of a child
			n, err = unix.Poll(fds, int(testTimeout/time.Millisecond))
		}
		if n != 1 || err != nil || sinceBoot() < at {
			t.Errorf("an alarm in %v: %d, %v", in, n, err)
		}
	}
}

func pathOf(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// alive reports whether a process exists and is not a zombie.
func alive(pid string) bool {
	p, ok := processOf(pid)
	return ok && !p.dead
}
