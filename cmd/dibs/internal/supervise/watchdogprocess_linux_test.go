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

// The watchdog's clock includes the time for which the machine was suspended. A time
// namespace simulates that: its boot clock is ahead of the monotonic clock.
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
	p := exec.Command("unshare", append(unshare, os.Args[0], WatchdogArg, "3", "4")...)
	p.ExtraFiles = []*os.File{in, out}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
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

// A watchdog process whose supervisor is dead exits after the killing, and not before it
// has found nothing twice. This test kills all its children, so it runs in a process of its
// own.
func TestWatchdogKillsBeforeItExits(t *testing.T) {
	if !inOwnProcess(t, os.Args[0]) {
		return
	}
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w := &watchdogProcess{alarm: -1, killAt: never, tree: tree{root: os.Getpid(), pid: c.Process.Pid}}
	w.parentDied()
	if w.done {
		t.Error("the watchdog process exits while it kills")
	}
	if err := c.Wait(); err == nil {
		t.Error("the command was not killed")
	}
	sweeps := 0
	for ; !w.done && sweeps < 10; sweeps++ {
		w.sweep()
	}
	if sweeps != 2 {
		t.Errorf("%d sweeps after the command had ended, want 2", sweeps)
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
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(a), Events: unix.POLLIN}}, int(testTimeout/time.Millisecond)); n != 1 || err != nil || sinceBoot() < at {
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
