package spawn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// patience is how long a server may take to start or to end.
const patience = 30 * time.Second

// A Server is a program with its own directory and port, which a test can end and start again. It
// is safe for concurrent use.
type Server struct {
	Dir  string
	Port int
	Env  []string // added to this process's environment, as "NAME=VALUE"

	name  string
	as    *Account
	death syscall.Signal

	mu  sync.Mutex
	run *Process
}

// NewServer returns a server that does not run yet. name is used for its directory and in errors.
// as is its user, and death the signal to end it with this process. The caller closes it.
func NewServer(name string, as *Account, death syscall.Signal) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	// Not in a test's directory, which only its user may enter.
	dir, err := os.MkdirTemp("", "dibs-"+name)
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, Port: port, name: name, as: as, death: death}
	if as != nil {
		if err := os.Chown(dir, as.uid, as.gid); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Addr returns the server's address.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Path returns the path to a server's file.
func (s *Server) Path(name string) string { return filepath.Join(s.Dir, name) }

// Prepare runs a program as the server's user, in its directory.
func (s *Server) Prepare(bin string, args ...string) error {
	c := exec.Command(bin, args...)
	c.Dir = s.Dir
	c.Env = append(c.Environ(), "TMPDIR="+s.Dir) // two servers would use the same names
	c.SysProcAttr = attributes(s.as, syscall.SIGKILL)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(bin), err, out)
	}
	return nil
}

// Start starts the program, and waits until greet returns nil on a new connection. The error
// contains the program's log.
func (s *Server) Start(bin string, args []string, greet func(net.Conn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.Path("log")
	cmd := exec.Command(bin, args...)
	cmd.Env = append(cmd.Environ(), s.Env...)
	run, err := start(cmd, log, s.as, s.death)
	if err != nil {
		return err
	}
	s.run = run
	err = run.Await(patience, func(context.Context) error {
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		return errors.Join(conn.SetDeadline(time.Now().Add(time.Second)), greet(conn))
	})
	if err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%s: %w: %s", s.name, err, text)
	}
	return nil
}

// End ends the program by a signal. It may start again.
func (s *Server) End(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.run.End(sig, patience)
	}
	s.run = nil
}

// Pid returns the process ID of the running program, or zero.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return 0
	}
	return s.run.Pid()
}

// Kill ends the program without a shutdown.
func (s *Server) Kill() { s.End(syscall.SIGKILL) }

// Pause stops the program and keeps its connections open, as when its machine is suspended.
func (s *Server) Pause() error { return s.running((*Process).Pause) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.running((*Process).Resume) }

func (s *Server) running(do func(*Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return fmt.Errorf("%s does not run", s.name)
	}
	return do(s.run)
}

// Close ends the program and removes its files.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.Dir)
}
