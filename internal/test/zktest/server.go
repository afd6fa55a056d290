// Package zktest starts ZooKeeper servers and ensembles for tests, on free loopback ports.
package zktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// A Server is a ZooKeeper server with its own data directory. It is safe for concurrent use.
type Server struct {
	*spawn.Server
	java  string
	flags []string
}

// Start starts a single server. args are settings of zoo.cfg, as in "tickTime=2000", or flags of
// Java, as in "-Xmx512m". They replace those of this package. The caller closes the server; on Linux
// it also ends with this process.
//
// A tick lasts 500 ms, so the shortest timeout of a session is 1 s and the longest is 10 s. Changes
// are not synced to the disk; "forceSync=yes" syncs them. TTL nodes are enabled.
func Start(args ...string) (*Server, error) {
	s, err := newServer()
	if err != nil {
		return nil, err
	}
	err = s.configure(nil, nil, args)
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newServer returns a server that does not run yet and has no settings.
func newServer() (*Server, error) {
	java, jars, found := find()
	if !found {
		return nil, ErrNoServer
	}
	server, err := spawn.NewServer("zookeeper", nil, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s := &Server{Server: server, java: java}
	s.flags = []string{
		"-cp", filepath.Join(jars, "*"),
		"-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // for little memory and a quick start
		"-XX:-UsePerfData", // a file outside the server's directory
		"-Djava.io.tmpdir=" + s.Dir,
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
	}
	return s, nil
}

// configure writes zoo.cfg. settings and flags belong to a member, and args to the caller.
func (s *Server) configure(settings, flags, args []string) error {
	settings = append(s.settings(), settings...)
	s.flags = append(s.flags, flags...)
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			s.flags = append(s.flags, arg)
		} else {
			settings = append(settings, arg)
		}
	}
	return os.WriteFile(s.config(), []byte(strings.Join(settings, "\n")+"\n"), 0o600)
}

func (s *Server) config() string { return s.Path("zoo.cfg") }

// settings returns the settings of every server.
func (s *Server) settings() []string {
	return []string{
		"dataDir=" + filepath.ToSlash(s.Path("data")),
		"clientPortAddress=127.0.0.1",
		fmt.Sprintf("clientPort=%d", s.Port),
		"tickTime=500",
		"forceSync=no",
		"extendedTypesEnabled=true",
		"maxClientCnxns=0", // no limit
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
	}
}

// Endpoint returns the address for clients, as in "127.0.0.1:2181".
func (s *Server) Endpoint() string { return s.Addr() }

// Restart starts the server again with its data, after Stop or Kill, and waits until it serves
// clients. In an ensemble this needs a majority. It fails after 30 s.
func (s *Server) Restart() error {
	args := append(slices.Clone(s.flags), "org.apache.zookeeper.server.quorum.QuorumPeerMain", s.config())
	return s.Start(s.java, args, serves)
}

// Stop ends the server with a signal that it can handle, as for a restart by an operator.
func (s *Server) Stop() { s.End(syscall.SIGTERM) }
