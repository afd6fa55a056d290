//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// In a tmux pane the keys work as on a terminal. A command outlives its client when it is
// detached, but not its pane.
func TestTmux(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip(err)
	}
	s := openTestStore(t, redistest.Start(t).URL())
	p := prepare(t, s.URL(), "-f", "/dev/null", "new-session", "-s", "main", ": >ready; exec bash --norc --noprofile --noediting -i")
	p.Path, p.Args[0] = path, "tmux"
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	p.Env = append(p.Env, "TERM=vt100", "LC_ALL=C.UTF-8", "TMUX_TMPDIR="+p.Dir)
	tmux := func(args ...string) {
		t.Helper()
		c := exec.Command(path, args...)
		c.Env = p.Env
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("tmux %v: %v: %s", args, err, out)
		}
	}
	j := &jobTest{program: p, shell: "bash", name: "in-tmux", store: s}
	j.screen = onTerminal(t, p)
	t.Cleanup(func() { tmux("kill-server") }) // before the client's end
	awaitFile := func(name, want string) {
		t.Helper()
		eventually(t, name, func() bool {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			return err == nil && strings.TrimSpace(string(text)) == want
		})
	}
	awaitFile("ready", "")

	j.enter(j.run(sleeps))
	j.awaitForeground()
	j.typeText(j.screen, ctrlC)
	j.enter("echo $? >interrupted")
	awaitFile("interrupted", "130")

	j.enter(j.run(sleeps))
	j.awaitForeground()
	j.stop()
	j.resume()
	tmux("detach-client", "-s", "main")
	p.wantCode(0)
	if !s.held(j.name) || j.dibs() == "" {
		t.Error("dibs has ended with the client")
	}
	tmux("split-window", "-d", "-t", "main") // so that the server survives the pane
	tmux("kill-pane", "-t", "main")
	j.wantFree()
	if pid := j.dibs(); pid != "" {
		eventually(t, "dibs has ended", func() bool { return !alive(pid) })
	}
}
