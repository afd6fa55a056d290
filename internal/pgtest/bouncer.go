package pgtest

import (
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

	"github.com/dibslock/dibs/internal/spawn"
)

// ErrNoBouncer means that this machine has no PgBouncer.
var ErrNoBouncer = errors.New("no PgBouncer is installed")

// A Bouncer is a PgBouncer in transaction mode in front of a server. It is safe for concurrent use.
type Bouncer struct {
	bin, dir string
	port     int

	mu  sync.Mutex
	run *spawn.Process
}

const bouncerConfig = `[databases]
* = host=127.0.0.1 port=%d user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
logfile =
pidfile =
`

// StartBouncer starts a PgBouncer that has some connections to a server. The caller closes it; on Linux
// it also ends with this process.
func StartBouncer(s *Server, connections int) (*Bouncer, error) {
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		return nil, ErrNoBouncer
	}
	// Not in a test's directory, which only its user may enter.
	dir, err := os.MkdirTemp("", "dibs-pgbouncer")
	if err != nil {
		return nil, err
	}
	b := &Bouncer{bin: bin, dir: dir}
	if err := errors.Join(b.configure(s, connections), b.Restart()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bouncer) configure(s *Server, connections int) (err error) {
	if b.port, err = spawn.FreePort(); err != nil {
		return err
	}
	text := fmt.Sprintf(bouncerConfig, s.port, superuser, b.port, connections)
	return errors.Join(os.Chmod(b.dir, 0o755), os.WriteFile(b.config(), []byte(text), 0o644))
}

func (b *Bouncer) config() string { return filepath.Join(b.dir, "pgbouncer.ini") }

// Addr returns the address of the pooler.
func (b *Bouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Kill ends the pooler without a shutdown.
func (b *Bouncer) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != nil {
		b.run.End(syscall.SIGKILL, startTimeout)
	}
	b.run = nil
}

// Restart starts the pooler again, after Kill, and waits until it accepts connections.
func (b *Bouncer) Restart() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if b.run, err = spawn.Start(b.bin, []string{b.config()}, log, spawn.User("postgres", "nobody"), syscall.SIGKILL); err != nil {
		return err
	}
	for end := time.Now().Add(startTimeout); ; time.Sleep(10 * time.Millisecond) { // between polls
		conn, err := net.Dial("tcp", b.Addr())
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(filepath.Join(b.dir, "log"))
			return fmt.Errorf("PgBouncer does not reply: %w: %s", err, text)
		}
	}
}

// Close ends the pooler and removes its files.
func (b *Bouncer) Close() error {
	b.Kill()
	return os.RemoveAll(b.dir)
}
