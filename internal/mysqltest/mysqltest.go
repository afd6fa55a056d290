// Package mysqltest starts MariaDB servers for tests, on free loopback ports.
package mysqltest

import (
	"bytes"
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
	"syscall"
	"time"

	"github.com/dibslock/dibs/internal/spawn"
)

// ErrNoServer means that this machine has no MariaDB server.
var ErrNoServer = errors.New("no MariaDB server is installed")

const startTimeout = 30 * time.Second // for a server to start or to end

// A Server is a MariaDB server with a data directory of its own. It is safe for concurrent use.
type Server struct {
	bin  string
	dir  string
	port int
	args []string

	mu  sync.Mutex
	run *spawn.Process
}

// Start creates a data directory and starts a server for it. args are options, as in
// "--log-bin". The caller closes it; on Linux it also ends with this process.
func Start(args ...string) (*Server, error) {
	bin, err := find("mariadbd", "/usr/sbin/mariadbd", "bin")
	if err != nil {
		return nil, err
	}
	// Not in a test's directory, which only its user may enter.
	dir, err := os.MkdirTemp("", "dibs-mariadb")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, args: args}
	if err := s.create(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// find returns the path of a program: in a folder of DIBS_MARIADB if that is set, or else one that may
// not be in PATH.
func find(name, elsewhere, folder string) (string, error) {
	if base := os.Getenv("DIBS_MARIADB"); base != "" {
		return filepath.Join(base, folder, name), nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if _, err := os.Stat(elsewhere); err == nil {
		return elsewhere, nil
	}
	return "", ErrNoServer
}

// baseDir returns the argument that names DIBS_MARIADB, if that is set.
func baseDir() []string {
	if base := os.Getenv("DIBS_MARIADB"); base != "" {
		return []string{"--basedir=" + base}
	}
	return nil
}

func credential() *syscall.Credential { return spawn.User("mysql", "nobody") }

func (s *Server) create() (err error) {
	id := credential()
	if id != nil {
		if err := os.Chown(s.dir, int(id.Uid), int(id.Gid)); err != nil {
			return err
		}
	}
	install, err := find("mariadb-install-db", "/usr/bin/mariadb-install-db", "scripts")
	if err != nil {
		return err
	}
	c := exec.Command(install, slices.Concat([]string{"--no-defaults", "--datadir=" + s.data()}, baseDir(), []string{"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"})...)
	c.Dir = s.dir
	c.Env = append(c.Environ(), "TMPDIR="+s.dir) // two servers would use the same names
	c.SysProcAttr = &syscall.SysProcAttr{Credential: id}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	if s.port, err = spawn.FreePort(); err != nil {
		return err
	}
	return s.Restart()
}

// Close ends the server and removes its files.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Addr returns the address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns the data source name of a database.
func (s *Server) DSN(database string) string { return DSN(s.Addr(), database) }

// DSN returns a data source name for a server behind an address, such as that of a proxy.
func DSN(addr, database string) string {
	return "root@tcp(" + addr + ")/" + database + "?interpolateParams=true"
}

// Restart starts the server again, after Stop or Kill, and waits until it replies.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{
		"--no-defaults", "--datadir=" + s.data(), "--port=" + strconv.Itoa(s.port), "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-name-resolve", "--tmpdir=" + s.dir,
		// The system keeps what a killed server has written.
		"--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--max-connections=1000",
	}, slices.Concat(baseDir(), s.args)...)
	if !strings.Contains(strings.Join(s.args, " "), "ssl") {
		args = append(args, "--skip-ssl") // since 11.4 a server has a certificate of its own making
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if s.run, err = spawn.Start(s.bin, args, log, credential(), syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for !s.greets() {
		select {
		case <-s.run.Exited:
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server has ended: %s", text)
		case <-ctx.Done():
			return errors.New("the server does not reply")
		case <-time.After(20 * time.Millisecond): // between polls
		}
	}
	return nil
}

// greets reports whether the server accepts connections: then it sends its version at once.
func (s *Server) greets() bool {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	n, err := conn.Read(make([]byte, 1))
	return err == nil && n == 1
}

// Execute executes statements as the administrator.
func (s *Server) Execute(statements string) error {
	_, err := s.query(statements)
	return err
}

// Feed gives a text to the client mariadb, which executes its statements in a database. options
// are those of the client.
func (s *Server) Feed(database, text string, options ...string) error {
	_, err := s.client(text, append(options, "--database="+database)...)
	return err
}

// query executes statements likewise, and returns their results without the names of the columns.
func (s *Server) query(statements string) (string, error) {
	return s.client("", "--batch", "--skip-column-names", "--execute="+statements)
}

// client runs the client mariadb, and returns its output.
func (s *Server) client(input string, options ...string) (string, error) {
	client, err := find("mariadb", "/usr/bin/mariadb", "bin")
	if err != nil {
		return "", err
	}
	c := exec.Command(client, append([]string{"--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--user=root"}, options...)...)
	c.Stdin = strings.NewReader(input)
	var complaints bytes.Buffer
	c.Stderr = &complaints // a later version warns there
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("mariadb %s: %w: %s", options, err, &complaints)
	}
	return strings.TrimSpace(string(out)), nil
}

// Replica starts a server that replicates this one, which must have started with --log-bin and a
// --server-id. The replica must not have the same --server-id.
func (s *Server) Replica(args ...string) (*Server, error) {
	r, err := Start(args...)
	if err != nil {
		return nil, err
	}
	const from = "SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'root', " +
		"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0; START SLAVE"
	if err := r.Execute(fmt.Sprintf(from, s.port)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Wait waits until a replica has executed all changes of another server.
func (s *Server) Wait(primary *Server) error {
	position, err := primary.query("SELECT @@gtid_binlog_pos")
	if err != nil {
		return err
	}
	return s.wait(position)
}

func (s *Server) wait(position string) error {
	reached, err := s.query(fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', %g)", position, startTimeout.Seconds()))
	if err == nil && reached != "0" {
		err = fmt.Errorf("the replica has not reached %s", position)
	}
	return err
}

// Promote makes a replica a server of its own, after it has executed all that it has received.
func (s *Server) Promote() error {
	status, err := s.query("STOP SLAVE IO_THREAD; SHOW SLAVE STATUS\\G")
	if err != nil {
		return err
	}
	_, received, _ := strings.Cut(status, "Gtid_IO_Pos: ")
	received, _, _ = strings.Cut(received, "\n")
	if err := s.wait(received); err != nil {
		return err
	}
	return s.Execute("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF")
}

// Stop ends the server as an operator does.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

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
