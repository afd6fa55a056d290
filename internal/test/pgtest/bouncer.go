package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// ErrNoBouncer means that no PgBouncer is installed.
var ErrNoBouncer = errors.New("no PgBouncer is installed")

// A Bouncer is a PgBouncer in transaction mode in front of a server. It is safe for concurrent use.
type Bouncer struct {
	*spawn.Server
	bin string
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

// StartBouncer starts a PgBouncer with some connections to a server. The caller closes it; on Linux
// it also ends with this process.
func StartBouncer(s *Server, connections int) (*Bouncer, error) {
	bin, found := spawn.Find("pgbouncer")
	if !found {
		return nil, ErrNoBouncer
	}
	server, err := spawn.NewServer("pgbouncer", credential(), syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	b := &Bouncer{server, bin}
	text := fmt.Sprintf(bouncerConfig, s.Port, superuser, b.Port, connections)
	if err := errors.Join(os.Chmod(b.Dir, 0o755), os.WriteFile(b.config(), []byte(text), 0o644), b.Restart()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bouncer) config() string { return b.Path("pgbouncer.ini") }

// Restart starts the pooler again, after Kill, and waits until it accepts connections.
func (b *Bouncer) Restart() error {
	return b.Start(b.bin, []string{b.config()}, func(net.Conn) error { return nil })
}
