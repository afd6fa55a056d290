package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// ErrNoServer means no redis-server or valkey-server is installed.
var ErrNoServer = errors.New("no redis-server in PATH")

const (
	startTimeout = 10 * time.Second // for a server to reply after its start
	stopTimeout  = 3 * time.Second  // for a server to end after SIGTERM
	portTries    = 5                // free ports to try
)

// A Server is a redis-server process on a loopback port. It is safe for concurrent use: a
// test may kill it while other goroutines use it.
type Server struct {
	bin        string
	major      int // its version
	dir        string
	args       []string
	cluster    bool
	sentinel   string                             // a sentinel's configuration file
	tlsFiles   *tlsFiles                          // for a server with TLS
	afterStart func(context.Context, *Conn) error // called until it succeeds before the server is ready

	runMu  sync.Mutex // held while the process is started or ended
	port   int
	bus    int     // for a cluster node
	tls    int     // for a server with TLS
	master *Server // if set, the next process starts as its replica
	runs   int     // processes started: each writes its own log
	proc   atomic.Pointer[spawn.Process]
}

// StartServer starts a server with its files in dir, which must exist, and waits until it
// replies. By default it saves no data. args override the defaults, but not the address,
// which is always a free loopback port.
//
// The caller stops the server. On Linux it also ends with this process, however that
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
	if s.major, err = majorVersion(bin); err != nil {
		return nil, err
	}
	s.runMu.Lock()
	defer s.runMu.Unlock()
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

// serverVariable names the program to start instead of the installed server.
const serverVariable = "DIBS_REDIS_SERVER"

// findServer returns the path to the server program.
func findServer() (string, error) {
	if bin := os.Getenv(serverVariable); bin != "" {
		return exec.LookPath(bin)
	}
	if bin, found := spawn.Find("redis-server", "valkey-server"); found {
		return bin, nil
	}
	return "", ErrNoServer
}

// choosePorts chooses all ports the server can need. They do not change, because a cluster's other
// nodes remember the bus port.
func (s *Server) choosePorts() error {
	for _, port := range []*int{&s.port, &s.bus, &s.tls} {
		var err error
		if *port, err = spawn.FreePort(); err != nil {
			return err
		}
	}
	if !s.cluster || !s.Before7() {
		return nil
	}
	for s.port > 65535-fixedBus { // another process may use the bus port: see errPortTaken
		var err error
		if s.port, err = spawn.FreePort(); err != nil {
			return err
		}
	}
	s.bus = s.port + fixedBus
	return nil
}

// fixedBus is the bus port's distance before Redis 7.
const fixedBus = 10000

// Addr returns the server's host:port. It never changes.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// URL returns the server's redis:// URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid returns the latest process's ID.
func (s *Server) Pid() int { return s.proc.Load().Pid() }

// Kill ends the process, as a crash would, and returns after its end.
func (s *Server) Kill() {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	s.proc.Load().Kill()
}

// Stop sends SIGTERM, kills the process after 3 s, and returns after its end.
func (s *Server) Stop() {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	s.proc.Load().End(syscall.SIGTERM, stopTimeout)
}

// Restart kills the process if it runs and starts another on the same port, in the same
// directory, with the same arguments. So a server with an append-only file keeps its
// data. It returns when the new process replies.
func (s *Server) Restart() error {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	return s.relaunch()
}

// restartUnder restarts the server as another server's replica. A later Restart does the same.
func (s *Server) restartUnder(master *Server) error {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	s.master = master
	return s.relaunch()
}

func (s *Server) relaunch() error {
	s.proc.Load().Kill()
	giveUp := time.Now().Add(startTimeout)
	for {
		err := s.launch()
		if !errors.Is(err, errPortTaken) || time.Now().After(giveUp) {
			return err
		}
	}
}

// Pause stops the process and keeps its connections open, like a long page-in or a
// suspended machine.
func (s *Server) Pause() error { return s.proc.Load().Pause() }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.proc.Load().Resume() }

// launch starts a process and waits until it replies. It leaves no process behind when it
// fails.
func (s *Server) launch() error {
	s.runs++
	p, err := spawn.Start(s.bin, s.arguments(), s.stderr(), nil, syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.proc.Store(p)
	if err := s.awaitReady(p); err != nil {
		p.Kill()
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
		args = append(args, "--cluster-enabled", "yes")
		if !s.Before7() {
			args = append(args, "--cluster-port", strconv.Itoa(s.bus))
		}
	}
	if s.tlsFiles != nil {
		args = append(args, s.tlsFiles.arguments(s.tls)...)
	}
	if s.master != nil {
		args = append(args, "--replicaof", "127.0.0.1", strconv.Itoa(s.master.port))
	}
	args = append(args, s.args...)
	if s.Before7() {
		args = without7(args)
	}
	return args
}

// without7 leaves out the options whose values need Redis 7.
func without7(args []string) []string {
	if i := slices.Index(args, "--shutdown-timeout"); i >= 0 {
		return slices.Delete(args, i, i+2)
	}
	return args
}

func (s *Server) log() string {
	return filepath.Join(s.dir, fmt.Sprintf("redis.%d.log", s.runs))
}

// stderr is the file for complaints about arguments, which come before the log.
func (s *Server) stderr() string { return s.log() + ".stderr" }

// Log returns the warnings logged by the latest process.
func (s *Server) Log() string {
	s.runMu.Lock()
	defer s.runMu.Unlock()
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
