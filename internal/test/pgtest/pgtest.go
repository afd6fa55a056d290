// Package pgtest starts PostgreSQL servers for tests, on free loopback ports.
package pgtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// ErrNoServer means that no PostgreSQL server is installed.
var ErrNoServer = errors.New("no PostgreSQL server is installed")

const superuser = "postgres"

// A Server is a PostgreSQL server with its own data directory. It is safe for concurrent use.
type Server struct {
	*spawn.Server
	bin  string
	args []string
}

// Start creates a database cluster and starts a server for it. args are settings, as in
// "fsync=on". The caller closes it; on Linux it also ends with this process.
func Start(args ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	return start(bin, args, "initdb", "-U", superuser, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
}

// ErrNoStandby means that the server's package lacks the program to copy a server.
var ErrNoStandby = errors.New("pg_basebackup is not installed")

// Standby starts a server to receive the changes of s. The caller closes it.
func (s *Server) Standby(args ...string) (*Server, error) {
	if _, err := os.Stat(filepath.Join(s.bin, "pg_basebackup")); err != nil {
		return nil, ErrNoStandby
	}
	return start(s.bin, args, "pg_basebackup", "-R", "-c", "fast", "--no-sync", "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", superuser)
}

// start creates the data directory by a command, and starts a server for it.
func start(bin string, args []string, command string, options ...string) (*Server, error) {
	server, err := spawn.NewServer("postgres", credential(), syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	s := &Server{server, bin, args}
	err = s.Prepare(filepath.Join(bin, command), append([]string{"-D", s.data()}, options...)...)
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the server and removes its files.
func (s *Server) Close() error {
	s.Stop()
	return s.Server.Close()
}

func (s *Server) data() string { return s.Path("data") }

// Installed reports whether Start finds a server.
func Installed() bool {
	_, err := binaries()
	return err == nil
}

// binaries returns the server's directory: from DIBS_POSTGRES, or for the newest server. On Debian
// it is not in PATH.
func binaries() (string, error) {
	if dir := os.Getenv("DIBS_POSTGRES"); dir != "" {
		return dir, nil
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, found := spawn.Find("postgres")
	if !found {
		return "", ErrNoServer
	}
	return filepath.Dir(path), nil
}

// credential returns the user to run the server as, because it refuses root; or nil for this
// process's user.
func credential() *spawn.Account { return spawn.User(superuser, "nobody") }

// URL returns the server's connection string.
func (s *Server) URL() string { return URL(s.Addr()) }

// URL returns a connection string for a server behind an address, such as a proxy's.
func URL(addr string) string {
	return "postgres://" + superuser + "@" + addr + "/postgres?sslmode=disable"
}

// Restart starts the server again, after Stop or Kill, and waits until it replies.
func (s *Server) Restart() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=300"}
	for _, setting := range s.args {
		args = append(args, "-c", setting)
	}
	const longest = 30 * time.Second
	for end := time.Now().Add(longest); ; {
		err := s.Start(filepath.Join(s.bin, "postgres"), args, greet)
		// The processes of a killed server end a moment after it.
		if err == nil || !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Now().After(end) {
			return err
		}
	}
}

// greet begins a session. An accepting server answers with a request to authenticate.
func greet(conn net.Conn) error {
	const version = 3 << 16
	text := "user\x00" + superuser + "\x00database\x00postgres\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	hello = append(binary.BigEndian.AppendUint32(hello, version), text...)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	kind := make([]byte, 1)
	if _, err := io.ReadFull(conn, kind); err != nil {
		return err
	}
	if kind[0] != 'R' {
		return fmt.Errorf("the server answers with %q", kind)
	}
	_, err := conn.Write([]byte{'X', 0, 0, 0, 4}) // so the server logs no lost connection
	return err
}

// Stop ends the server and its connections, as for a restart by an operator.
func (s *Server) Stop() { s.End(syscall.SIGINT) }
