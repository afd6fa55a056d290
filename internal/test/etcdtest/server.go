// Package etcdtest starts etcd servers and clusters for tests, on free loopback ports.
package etcdtest

import (
	"errors"
	"slices"
	"syscall"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// A Server is a member of an etcd cluster, with its own data directory. It is safe for concurrent
// use.
type Server struct {
	*spawn.Server
	bin  string
	args []string
}

// Start starts a cluster with a single member. args are further flags, as in
// "--unsafe-no-fsync=false"; they replace the flags of this package. The caller closes it; on Linux
// it also ends with this process.
//
// The heartbeat interval and the election timeout are the defaults. With them the shortest TTL of an
// etcd lease is 2 s.
func Start(args ...string) (*Server, error) {
	s, err := prepare()
	if err != nil {
		return nil, err
	}
	const peer = "http://127.0.0.1:0" // no other member connects to it
	s.args = slices.Concat(s.flags("single", peer, peer), []string{"--initial-cluster=single=" + peer}, args)
	if err := s.Restart(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare returns a server that does not run yet and has no flags.
func prepare() (*Server, error) {
	bin, found := find("etcd")
	if !found {
		return nil, ErrNoServer
	}
	server, err := spawn.NewServer("etcd", nil, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, bin: bin}, nil
}

// flags returns the flags of a member, except the list of members. listen is the URL where it accepts
// other members, and advertised is the URL that they use.
func (s *Server) flags(name, listen, advertised string) []string {
	client := "http://" + s.Endpoint()
	return []string{
		"--name=" + name,
		"--data-dir=" + s.Path("data"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + listen,
		"--initial-advertise-peer-urls=" + advertised,
		"--heartbeat-interval=100",
		"--election-timeout=1000",
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

// Endpoint returns the address for clients, as in "127.0.0.1:2379".
func (s *Server) Endpoint() string { return s.Addr() }

// Restart starts the server again with its data, after Stop or Kill, and waits until it is healthy.
// This needs a majority of the members. It fails after 30 s.
func (s *Server) Restart() error { return s.Start(s.bin, s.args, healthy) }

// Stop ends the server with a shutdown, as for a restart by an operator. It takes 7 s while a client
// watches keys.
func (s *Server) Stop() { s.End(syscall.SIGTERM) }
