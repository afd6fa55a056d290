// Package childtest runs parts of a test in child processes that the test can kill.
package childtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A Role is a child process's part of a test. It prints lines to out for the test. The process ends
// when the role returns, or when the test's process ends.
type Role func(out io.Writer, args []string) error

// lineLimit limits a test's wait for a line or for a child's end.
const lineLimit = time.Minute

// roleVariable contains a child process's role in its environment.
const roleVariable = "DIBS_TEST_ROLE"

// Main runs this process's role; without a role, it runs the tests, and calls the functions after
// them. It is called from TestMain, and does not return.
func Main(m *testing.M, roles map[string]Role, after ...func()) {
	name, isChild := os.LookupEnv(roleVariable)
	if !isChild {
		code := m.Run()
		for _, f := range after {
			f()
		}
		os.Exit(code)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		os.Exit(1)
	}()
	role, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "childtest: no role %q\n", name)
		os.Exit(2)
	}
	if err := role(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A Child is a process running a role. Only one goroutine can use it.
type Child struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
	ended chan struct{} // closed after the end of the process
	err   error         // the process's error; set before ended is closed
}

// Start starts a child process. It is killed when the test ends.
func Start(t testing.TB, role string, args ...string) *Child {
	t.Helper()
	c := &Child{t: t, cmd: exec.Command(os.Args[0], args...), lines: make(chan string, 1<<16), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	c.cmd.Stderr = t.Output()
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.cmd.StdinPipe(); err != nil { // closed when this process ends
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(stdout)
	t.Cleanup(c.Kill)
	return c
}

func (c *Child) read(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		c.lines <- lines.Text()
	}
	c.err = c.cmd.Wait()
	close(c.lines)
	close(c.ended)
}

// Line returns the child's next line. The test fails if the child ends before, or prints no line
// for a minute.
func (c *Child) Line() string {
	c.t.Helper()
	timer := time.NewTimer(lineLimit)
	defer timer.Stop()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatalf("%v: ended without a further line: %v", c.cmd.Env[len(c.cmd.Env)-1], c.err)
		}
		return line
	case <-timer.C:
		c.t.Fatalf("%v: no line within %v", c.cmd.Env[len(c.cmd.Env)-1], lineLimit)
	}
	panic("unreachable")
}

// Lines receives the child's lines. It is closed when the child ends.
func (c *Child) Lines() <-chan string { return c.lines }

// Kill sends SIGKILL, and waits until the process ends. Lines printed before can still be read.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails only after its end
	<-c.ended
}

// Process returns the process, for other signals.
func (c *Child) Process() *os.Process { return c.cmd.Process }

// Wait waits until the process ends by itself, for a minute at most, and returns its error.
func (c *Child) Wait() error {
	c.t.Helper()
	timer := time.NewTimer(lineLimit)
	defer timer.Stop()
	select {
	case <-c.ended:
		return c.err
	case <-timer.C:
		return fmt.Errorf("still running after %v", lineLimit)
	}
}
