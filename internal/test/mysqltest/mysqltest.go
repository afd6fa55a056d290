// Package mysqltest starts MariaDB servers for tests, on free loopback ports.
package mysqltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// ErrNoServer means that no MariaDB server is installed.
var ErrNoServer = errors.New("no MariaDB server is installed")

// A Server is a MariaDB server with its own data directory. It is safe for concurrent use.
type Server struct {
	*spawn.Server
	args []string
}

// Start creates a data directory and starts a server for it. args are options, as in
// "--log-bin". The caller closes it; on Linux it also ends with this process.
func Start(args ...string) (*Server, error) {
	install, err := find("mariadb-install-db", "scripts")
	if err != nil {
		return nil, err
	}
	server, err := spawn.NewServer("mariadb", spawn.User("mysql", "nobody"), syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s := &Server{server, args}
	err = s.Prepare(install, slices.Concat([]string{"--no-defaults", "--datadir=" + s.Path("data")}, baseDir(),
		[]string{"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"})...)
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// find returns the path of a program: in a folder below DIBS_MARIADB if this variable is set.
func find(name, folder string) (string, error) {
	if base := os.Getenv("DIBS_MARIADB"); base != "" {
		return filepath.Join(base, folder, name), nil
	}
	path, found := spawn.Find(name)
	if !found {
		return "", ErrNoServer
	}
	return path, nil
}

// baseDir returns an argument with the value of DIBS_MARIADB, if set.
func baseDir() []string {
	if base := os.Getenv("DIBS_MARIADB"); base != "" {
		return []string{"--basedir=" + base}
	}
	return nil
}

// DSN returns a database's data source name.
func (s *Server) DSN(database string) string { return DSN(s.Addr(), database) }

// DSN returns a data source name for a server behind an address, such as a proxy's.
func DSN(addr, database string) string {
	return "root@tcp(" + addr + ")/" + database + "?interpolateParams=true"
}

// Restart starts the server again, after Stop or Kill, and waits until it replies.
func (s *Server) Restart() error {
	bin, err := find("mariadbd", "bin")
	if err != nil {
		return err
	}
	args := append([]string{
		"--no-defaults", "--datadir=" + s.Path("data"), "--port=" + strconv.Itoa(s.Port), "--bind-address=127.0.0.1",
		"--socket=" + s.Path("socket"), "--pid-file=" + s.Path("pid"), "--skip-name-resolve", "--tmpdir=" + s.Dir,
		// The system keeps a killed server's writes.
		"--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--max-connections=1000",
	}, slices.Concat(baseDir(), s.args)...)
	if !strings.Contains(strings.Join(s.args, " "), "ssl") {
		args = append(args, "--skip-ssl") // since 11.4 a server creates its own certificate
	}
	return s.Server.Start(bin, args, func(conn net.Conn) error {
		_, err := io.ReadFull(conn, make([]byte, 1)) // an accepting server sends its version at once
		return err
	})
}

// Execute executes statements as the administrator.
func (s *Server) Execute(statements string) error {
	_, err := s.query(statements)
	return err
}

// Feed passes a text to the mariadb client, which executes its statements in a database. options
// are for the client.
func (s *Server) Feed(database, text string, options ...string) error {
	_, err := s.client(text, append(options, "--database="+database)...)
	return err
}

// query also executes statements, and returns their results without column names.
func (s *Server) query(statements string) (string, error) {
	return s.client("", "--batch", "--skip-column-names", "--execute="+statements)
}

// client runs the client mariadb, and returns its output.
func (s *Server) client(input string, options ...string) (string, error) {
	client, err := find("mariadb", "bin")
	if err != nil {
		return "", err
	}
	c := exec.Command(client, append([]string{"--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=" + strconv.Itoa(s.Port), "--user=root"}, options...)...)
	c.Stdin = strings.NewReader(input)
	var complaints bytes.Buffer
	c.Stderr = &complaints // a later version warns there
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("mariadb %s: %w: %s", options, err, &complaints)
	}
	return strings.TrimSpace(string(out)), nil
}

// Replica starts a server replicating this server, which must have been started with --log-bin and
// a --server-id. The replica needs a different --server-id.
func (s *Server) Replica(args ...string) (*Server, error) {
	r, err := Start(args...)
	if err != nil {
		return nil, err
	}
	const from = "SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'root', " +
		"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0; START SLAVE"
	if err := r.Execute(fmt.Sprintf(from, s.Port)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Wait waits until a replica executed all changes from another server.
func (s *Server) Wait(primary *Server) error {
	position, err := primary.query("SELECT @@gtid_binlog_pos")
	if err != nil {
		return err
	}
	return s.wait(position)
}

const longestWait = 30 * time.Second // for the changes from another server

func (s *Server) wait(position string) error {
	reached, err := s.query(fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', %g)", position, longestWait.Seconds()))
	if err == nil && reached != "0" {
		err = fmt.Errorf("the replica has not reached %s", position)
	}
	return err
}

// Promote makes a replica an independent server, after it executed all received changes.
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
func (s *Server) Stop() { s.End(syscall.SIGTERM) }
