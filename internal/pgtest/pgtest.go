// Package pgtest starts PostgreSQL servers for tests, on free loopback ports.
package pgtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dibslock/dibs/internal/spawn"
)

// ErrNoServer means that this machine has no PostgreSQL server.
var ErrNoServer = errors.New("no PostgreSQL server is installed")

const (
	startTimeout = 30 * time.Second // for a server to start or to end
	superuser    = "postgres"
)

// A Server is a PostgreSQL server with a data directory of its own. It is safe for concurrent
// use.
type Server struct {
	bin  string
	dir  string
	port int
	args []string

	mu  sync.Mutex
	run *spawn.Process
}

// Start creates a database cluster and starts a server for it. args are settings, as in
// "fsync=on". The caller closes it; on Linux it also ends with this process.
func Start(args ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	// Not in a test's directory, which only its user may enter.
	dir, err := os.MkdirTemp("", "dibs-postgres")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, args: args}
	if err := s.create(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) create() error {
	return s.begin("initdb", "-D", s.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
}

// ErrNoStandby means that the package of the server lacks the program that copies it.
var ErrNoStandby = errors.New("pg_basebackup is not installed")

// Standby starts a server that receives the changes of s. The caller closes it.
func (s *Server) Standby(args ...string) (*Server, error) {
	if _, err := os.Stat(filepath.Join(s.bin, "pg_basebackup")); err != nil {
		return nil, ErrNoStandby
	}
	dir, err := os.MkdirTemp("", "dibs-postgres")
	if err != nil {
		return nil, err
	}
	standby := &Server{bin: s.bin, dir: dir, args: args}
	err = standby.begin("pg_basebackup", "-D", standby.data(), "-R", "-c", "fast", "--no-sync", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", superuser)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return standby, nil
}

// begin creates the data directory by a command, and starts the server.
func (s *Server) begin(command string, args ...string) (err error) {
	if id := credential(); id != nil {
		if err := os.Chown(s.dir, int(id.Uid), int(id.Gid)); err != nil {
			return err
		}
	}
	if err := s.command(command, args...); err != nil {
		return err
	}
	if s.port, err = spawn.FreePort(); err != nil {
		return err
	}
	return s.Restart()
}

// Close ends the server and removes its files.
func (s *Server) Close() error {
	s.Stop()
	return os.RemoveAll(s.dir)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// binaries returns the directory of the server that DIBS_POSTGRES names, or else of the newest one.
// Debian does not have it in PATH.
func binaries() (string, error) {
	if dir := os.Getenv("DIBS_POSTGRES"); dir != "" {
		return dir, nil
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", ErrNoServer
	}
	return filepath.Dir(path), nil
}

// credential returns the user that the server runs as, because it refuses root; or nil for the
// user of this process.
func credential() *syscall.Credential { return spawn.User(superuser, "nobody") }

func (s *Server) command(name string, args ...string) error {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.Dir = s.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: credential()}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the connection string of the server.
func (s *Server) URL() string { return URL(s.Addr()) }

// URL returns a connection string for a server behind an address, such as that of a proxy.
func URL(addr string) string {
	return "postgres://" + superuser + "@" + addr + "/postgres?sslmode=disable"
}

// Restart starts the server again, after Stop or Kill, and waits until it replies.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		log, err := s.start(ctx)
		// The processes of a killed server end a moment after it.
		if err == nil || !bytes.Contains(log, []byte("pre-existing shared memory block")) || ctx.Err() != nil {
			return err
		}
	}
}

// greets reports whether the server accepts a client: then it answers with a request to authenticate.
func (s *Server) greets() bool {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	const version = 3 << 16
	text := "user\x00" + superuser + "\x00database\x00postgres\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	hello = append(binary.BigEndian.AppendUint32(hello, version), text...)
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(hello); err != nil {
		return false
	}
	kind := make([]byte, 1)
	_, err = io.ReadFull(conn, kind)
	_, _ = conn.Write([]byte{'X', 0, 0, 0, 4}) // so that the server logs no lost connection
	return err == nil && kind[0] == 'R'
}

// start starts the server, and waits until it replies. It returns what it has logged if it has ended.
func (s *Server) start(ctx context.Context) (log []byte, err error) {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=300"}
	for _, setting := range s.args {
		args = append(args, "-c", setting)
	}
	name := filepath.Join(s.dir, "log")
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if s.run, err = spawn.Start(filepath.Join(s.bin, "postgres"), args, file, credential(), syscall.SIGQUIT); err != nil {
		return nil, err
	}
	for !s.greets() {
		select {
		case <-s.run.Exited:
			log, err = os.ReadFile(name)
			return log, errors.Join(err, fmt.Errorf("the server has ended: %s", log))
		case <-ctx.Done():
			return nil, errors.New("the server does not reply")
		case <-time.After(20 * time.Millisecond): // between polls
		}
	}
	return nil, nil
}

// Stop ends the server and its connections, as for a restart by an operator.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill ends the server without a shutdown.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.run.End(sig, startTimeout)
	}
	s.run = nil
}
