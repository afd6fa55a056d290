package spawn_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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
import os, socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    s.accept()[0].sendall(os.environb[b"GREETING"])
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
	s.Env = []string{"GREETING=hello"}
	_, port, _ := net.SplitHostPort(s.Addr())
	for range 2 {
		if err := s.Start(python, []string{"-c", program, port}, greeted); err != nil {
			t.Fatal(err)
		}
		pauseAndResume(t, s)
		s.End(syscall.SIGTERM)
		if s.Pause() == nil || s.Resume() == nil {
			t.Error("an ended server was paused")
		}
	}
}

func greeted(conn net.Conn) error {
	text, err := io.ReadAll(io.LimitReader(conn, 5))
	if string(text) != "hello" {
		return errors.Join(err, errors.New("no greeting"))
	}
	return err
}

// A paused server should greet after its resumption only.
func pauseAndResume(t *testing.T, s *spawn.Server) {
	t.Helper()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if err := greeted(conn); err == nil {
		t.Error("a paused server greets")
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err := errors.Join(s.Resume(), greeted(conn)); err != nil {
		t.Error(err)
	}
}
