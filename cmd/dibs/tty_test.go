//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// onTerminal runs dibs, or another program, as a terminal's session leader. Writes to the returned
// file are typed input; the terminal's output goes to p.stdout.
func onTerminal(t *testing.T, p *program) *os.File {
	t.Helper()
	p.Stdin, p.Stdout, p.Stderr = nil, nil, nil
	screen, err := pty.Start(p.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for buf := make([]byte, 1024); ; {
			n, err := screen.Read(buf)
			if err != nil {
				return // the last process on the terminal exited
			}
			p.stdout.Write([]byte(strings.ReplaceAll(string(buf[:n]), "\r\n", "\n")))
		}
	}()
	p.endWithTest(func() {
		<-shown
		screen.Close()
	})
	return screen
}

func (p *program) typeText(screen *os.File, text string) {
	p.t.Helper()
	if _, err := screen.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// The command should run in the foreground: it reads the input and receives ^C. Afterwards the
// shell should have the terminal again.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := prepare(t, s.URL(), "-c", `dibs run job -- sh -c 'echo "begins"; read line; echo "read $line"'
		dibs run job -- sh -c 'trap "echo caught; exit 9" INT; echo "waits"; while :; do sleep 0.02; done'; echo "code $?"
		read line; echo "shell $line"`)
	p.Path, p.Args[0] = "/bin/sh", "sh"
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	screen := onTerminal(t, p)
	p.awaitLine("begins")
	p.typeText(screen, "hello\n")
	if have := p.awaitLine("read"); have != "hello" {
		t.Errorf("the command reads %q", have)
	}
	p.awaitLine("waits")
	p.typeText(screen, "\x03")
	if have := p.awaitLine("code"); have != "9" {
		t.Errorf("after ^C: code %s", have)
	}
	p.typeText(screen, "again\n")
	if have := p.awaitLine("shell"); have != "again" {
		t.Errorf("the shell reads %q", have)
	}
	p.wantCode(0)
}

// If the command cannot be run, the shell should have the terminal again.
func TestTerminalIsBackAfterFailure(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := prepare(t, s.URL(), "-c", `dibs run job -- ./nobody; echo "code $?"; read line; echo "shell $line"`)
	p.Path, p.Args[0] = "/bin/sh", "sh"
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	if err := os.WriteFile(filepath.Join(p.Dir, "nobody"), []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	screen := onTerminal(t, p)
	if have := p.awaitLine("code"); have != "127" {
		t.Errorf("code %s", have)
	}
	p.typeText(screen, "hello\n")
	if have := p.awaitLine("shell"); have != "hello" {
		t.Errorf("the shell reads %q", have)
	}
	p.wantCode(0)
}

// In a pipeline the other programs keep the terminal. A command that reads from the terminal then
// gets the foreground. ^C reaches all of them.
func TestPipeline(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, test := range map[string]struct{ script, typed, want string }{
		"before": {`(read line; echo "$line") | dibs run before -- sh -c 'echo begins >/dev/tty; read line; echo "has $line"'`, "hello\n", "hello"},
		"behind": {`dibs run behind -- echo begins | (read line; echo "$line"; read line </dev/tty; echo "has $line")`, "hello\n", "hello"},
		"wants":  {`dibs run wants -- sh -c 'echo begins >/dev/tty; read line </dev/tty; echo "has $line"' | cat`, "hello\n", "hello"},
		"ends":   {`trap : INT; dibs run ends -- sh -c 'trap "echo; echo has ended; exit" INT; echo begins >/dev/tty; while :; do sleep 0.02; done' | (trap '' INT; cat)`, "\x03", "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, s.URL(), "-c", test.script)
			p.Path, p.Args[0] = "/bin/sh", "sh"
			p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
			screen := onTerminal(t, p)
			p.awaitLine("begins")
			p.typeText(screen, test.typed)
			if have := p.awaitLine("has"); have != test.want {
				t.Errorf("has %q", have)
			}
			p.code()
		})
	}
}

// A waiter on a terminal shows the holder.
func TestProgress(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	first := begin(t, s.URL(), "hold", "--no-stdin", "--label", "backup", "job")
	first.awaitLine("held")
	p := prepare(t, s.URL(), "run", "job", "--", "echo", "done")
	onTerminal(t, p)
	eventually(t, "the line is redrawn", func() bool {
		return strings.Count(p.stdout.String(), "(backup), ") > 1
	})
	first.Process.Signal(syscall.SIGTERM)
	eventually(t, "the line is erased", func() bool { return strings.HasSuffix(p.stdout.String(), "\r\x1b[Kdone\n") })
	p.wantCode(0)
}
