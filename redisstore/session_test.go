package redisstore_test

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// The session in docs/spec.md should have the replies shown there, apart from times.
func TestSessionOfTheSpecification(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	text, err := os.ReadFile("../docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	_, session, _ := strings.Cut(string(text), "### A session by hand\n")
	blocks := strings.Split(session, "```\n")
	if len(blocks) < 5 {
		t.Fatal("docs/spec.md has no session")
	}
	server := redistest.Start(t)
	received := messages(t, server, "dibs:c:web-2:77:t1mEo1Y3rXcJk0aZ")
	_, port, _ := net.SplitHostPort(server.Addr())
	script := "redis-cli() { command redis-cli -p " + port + " $format \"$@\"; }\n" + blocks[1]
	var want, message strings.Builder
	for _, block := range []string{blocks[3], blocks[5]} {
		for line := range strings.Lines(block) {
			command, isCommand := strings.CutPrefix(line, "$ ")
			switch {
			case strings.HasPrefix(command, "V="):
				script += "format=\n" + command
			case isCommand:
				script += "format=--no-raw\n" + command // as in a terminal
			case strings.HasPrefix(line, "message "):
				message.WriteString(strings.TrimPrefix(line, "message  "))
			default:
				want.WriteString(line)
			}
		}
	}
	run := exec.CommandContext(t.Context(), "bash", "-c", script)
	run.Dir = "internal/wire/plain"
	have, err := run.CombinedOutput()
	if err != nil || withoutTimes(string(have)) != withoutTimes(want.String()) {
		t.Errorf("%v\nhave\n%s\nwant\n%s", err, have, want.String())
	}
	if have := receive(t, received); withoutTimes(have+"\n") != withoutTimes(message.String()) {
		t.Errorf("the message is %q, want %q", have, message.String())
	}
}

var times = regexp.MustCompile(`\d{16}|\b29\d{3}\b`)

func withoutTimes(text string) string { return times.ReplaceAllString(text, "TIME") }
