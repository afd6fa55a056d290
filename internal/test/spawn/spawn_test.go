package spawn_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// A server's immediate end should be an error with its log, and its files should be removed.
func TestServerThatFails(t *testing.T) {
	t.Parallel()
	sh, found := spawn.Find("sh")
	if !found {
		t.Skip("no sh")
	}
	s, err := spawn.NewServer("test", nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(sh, []string{"-c", "echo no room; exit 1"}, func(net.Conn) error { return errors.New("it runs") })
	if err == nil || !strings.Contains(err.Error(), "no room") || !strings.Contains(err.Error(), "exited") {
		t.Errorf("have %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", s.Dir, err)
	}
}

// Start should wait until the server greets, and an ended server can start again.
func TestServer(t *testing.T) {
	t.Parallel()
	python, found := spawn.Find("python3")
	if !found {
		t.Skip("no python3")
	}
	const program = `
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    s.accept()[0].sendall(b"hello")
`
	s, err := spawn.NewServer("test", nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, port, _ := net.SplitHostPort(s.Addr())
	for range 2 {
		err = s.Start(python, []string{"-c", program, port}, func(conn net.Conn) error {
			text, err := io.ReadAll(io.LimitReader(conn, 5))
			if string(text) != "hello" {
				return errors.Join(err, errors.New("no greeting"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.End(syscall.SIGTERM)
	}
}
