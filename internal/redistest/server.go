package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoServer says that this machine has no redis-server or valkey-server.
var ErrNoServer = errors.New("no redis-server in PATH")

const (
	readyWithin = 10 * time.Second // for a server to answer after its start
	portTries   = 5                // free ports tried before giving up
)

// A Server is one redis-server process on a loopback port. It is safe for
// concurrent use: a nemesis may kill it while tests talk to it.
type Server struct {
	bin      string
	dir      string
	args     []string
	cluster  bool
	sentinel string                             // the configuration file of a sentinel
	secrets  *secrets                           // of a server that speaks TLS too
	settle   func(context.Context, *Conn) error // what else it takes to be ready

	life   sync.Mutex // held by whoever starts or ends the process
	port   int
	bus    int     // of a cluster node
	tls    int     // of a server that speaks TLS too
	master *Server // whose replica the next process is from its start
	runs   int     // processes started so far: each has its own log
	proc   atomic.Pointer[process]
}

// StartServer starts a server that keeps its files in dir, which must exist, and
// waits until it answers. Without args it saves nothing; args come last, so that
// they override, except for the address, which is always a free loopback port.
//
// The caller stops it. On Linux it also dies with this process, however that
// ends. The error is ErrNoServer if no server is installed.
func StartServer(dir string, args ...string) (*Server, error) {
	return start(&Server{dir: dir, args: args})
}

func start(s *Server) (*Server, error) {
	bin, err := findServer()
	if err != nil {
		return nil, err
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	s.bin = bin
	s.life.Lock()
	defer s.life.Unlock()
	for range portTries {
		if err := s.choosePorts(); err != nil {
			return nil, err
		}
		if err = s.launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// findServer looks in PATH first, then where packages put daemons, which the
// PATH of a plain user often leaves out.
func findServer() (string, error) {
	names := []string{"redis-server", "valkey-server"}
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/bin"} {
		for _, name := range names {
			if bin, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return bin, nil
			}
		}
	}
	return "", ErrNoServer
}

// choosePorts chooses all the ports a server may need. They stay with it: the
// other nodes of a cluster remember where its bus was.
func (s *Server) choosePorts() error {
	for _, port := range []*int{&s.port, &s.bus, &s.tls} {
		var err error
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	return nil
}

// freePort asks the kernel. Another process may take the port before the server
// does, hence errPortTaken.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Addr is the server's host:port. It never changes.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// URL is the server's redis:// URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid is the process id of the latest process.
func (s *Server) Pid() int { return s.proc.Load().cmd.Process.Pid }

// Kill ends the process as a crash would, and returns once it is gone.
func (s *Server) Kill() {
	s.life.Lock()
	defer s.life.Unlock()
	s.proc.Load().kill()
}

// Stop asks the process to leave, kills it if it has not within 3 s, and returns
// once it is gone.
func (s *Server) Stop() {
	s.life.Lock()
	defer s.life.Unlock()
	s.proc.Load().stop()
}

// Restart kills the process if it runs and starts another on the same port, in
// the same directory, with the same arguments: one with an append-only file has
// its data back. It returns once the new one answers.
func (s *Server) Restart() error {
	s.life.Lock()
	defer s.life.Unlock()
	return s.relaunch()
}

// restartUnder is Restart as a replica of another server. A Restart after it does
// the same.
func (s *Server) restartUnder(master *Server) error {
	s.life.Lock()
	defer s.life.Unlock()
	s.master = master
	return s.relaunch()
}

func (s *Server) relaunch() error {
	s.proc.Load().kill()
	giveUp := time.Now().Add(readyWithin)
	for {
		err := s.launch()
		if !errors.Is(err, errPortTaken) || time.Now().After(giveUp) {
			return err
		}
	}
}

// Pause stops the process where it stands, with its connections open: what a
// long page-in or a suspended machine looks like from outside.
func (s *Server) Pause() error { return s.proc.Load().pause() }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.proc.Load().resume() }

// launch starts a process and waits until it answers. It leaves none behind when
// it fails.
func (s *Server) launch() error {
	s.runs++
	p, err := spawn(s.bin, s.arguments(), s.stderr())
	if err != nil {
		return err
	}
	s.proc.Store(p)
	if err := s.awaitReady(p); err != nil {
		p.kill()
		return s.explain(err)
	}
	return nil
}

func (s *Server) arguments() []string {
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.port),
		"--dir", s.dir,
		"--daemonize", "no",
		"--loglevel", "warning",
		"--logfile", s.log(),
	}
	if s.sentinel != "" {
		return append([]string{s.sentinel, "--sentinel"}, args...)
	}
	args = append(args, "--save", "", "--appendonly", "no")
	if s.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.bus))
	}
	if s.secrets != nil {
		args = append(args, s.secrets.arguments(s.tls)...)
	}
	if s.master != nil {
		args = append(args, "--replicaof", "127.0.0.1", strconv.Itoa(s.master.port))
	}
	return append(args, s.args...)
}

func (s *Server) log() string {
	return filepath.Join(s.dir, fmt.Sprintf("redis.%d.log", s.runs))
}

// stderr is where a server complains about its arguments, before it has a log.
func (s *Server) stderr() string { return s.log() + ".stderr" }

// Log is what the latest process has logged: its warnings.
func (s *Server) Log() string {
	s.life.Lock()
	defer s.life.Unlock()
	return s.readLog()
}

func (s *Server) readLog() string {
	log, _ := os.ReadFile(s.log())
	complaints, _ := os.ReadFile(s.stderr())
	return string(log) + string(complaints)
}

var errPortTaken = errors.New("port taken")

func (s *Server) explain(err error) error {
	log := s.readLog()
	if strings.Contains(log, "Address already in use") || strings.Contains(log, "Failed listening") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	if withoutTLS(log) {
		err = fmt.Errorf("%w: %w", errNoTLS, err)
	}
	return fmt.Errorf("redistest: %s on port %d: %w\n%s", s.bin, s.port, err, log)
}
