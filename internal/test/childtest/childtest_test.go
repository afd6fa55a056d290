package childtest

import (
	"fmt"
	"io"
	"testing"
)

func TestMain(m *testing.M) {
	Main(m, map[string]Role{
		"echo": func(out io.Writer, args []string) error {
			for _, arg := range args {
				fmt.Fprintln(out, arg)
			}
			return nil
		},
		"hang": func(out io.Writer, _ []string) error {
			fmt.Fprintln(out, "ready")
			select {}
		},
	})
}

func TestLines(t *testing.T) {
	c := Start(t, "echo", "one", "two words")
	if first, second := c.Line(), c.Line(); first != "one" || second != "two words" {
		t.Errorf("have %q and %q, want one and two words", first, second)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

func TestKill(t *testing.T) {
	c := Start(t, "hang")
	c.Line()
	c.Kill()
	if err := c.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("have %v, want signal: killed", err)
	}
}

func TestUnknownRole(t *testing.T) {
	if err := Start(t, "nobody").Wait(); err == nil {
		t.Error("have no error, want exit status 2")
	}
}
