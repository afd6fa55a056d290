package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Replicated is a master and its replicas. There is no automatic failover, and the fields
// keep the initial roles.
type Replicated struct {
	Master   *Server
	Replicas []*Server
}

// StartReplicated starts a master and replicas, and stops them with the test. When it returns, the
// replicas replicate. All get the same args; see [StartServer], and [Start] for the case without an
// installed server. A password in --requirepass is also used for replication.
//
// A restarted replica replicates again. A restarted master is empty, and so are its
// replicas soon after.
func StartReplicated(t testing.TB, replicas int, args ...string) *Replicated {
	t.Helper()
	r := &Replicated{Master: startOne(t, &Server{dir: t.TempDir(), args: replicationArgs(args)})}
	for range replicas {
		replica := &Server{dir: t.TempDir(), args: replicationArgs(args), master: r.Master}
		r.Replicas = append(r.Replicas, replica)
	}
	startAll(t, r.Replicas...)
	if err := r.WaitOnline(); err != nil {
		t.Fatal(err)
	}
	return r
}

// WaitOnline waits until all running replicas replicate from the master. It fails after 30 s and
// names the others.
func (r *Replicated) WaitOnline() error {
	return waitUntil("the replicas are online", func(ctx context.Context) error {
		return online(ctx, r.Master, runningServers(r.Replicas))
	})
}

// WaitCaughtUp waits until a replica received all writes made by its master until now. It fails
// after 30 s.
func WaitCaughtUp(master, replica *Server) error {
	written, err := offset(context.Background(), master, "master_repl_offset")
	if err != nil {
		return err
	}
	return waitUntil("the replica has caught up", func(ctx context.Context) error {
		return hasRead(ctx, replica, written)
	})
}

func hasRead(ctx context.Context, replica *Server, written int64) error {
	read, err := offset(ctx, replica, "slave_repl_offset")
	if err == nil && read < written {
		err = fmt.Errorf("%s has read up to %d of %d", replica.Addr(), read, written)
	}
	return err
}

// offset returns a position in a master's write stream.
func offset(ctx context.Context, s *Server, name string) (int64, error) {
	info, err := s.queryText(ctx, "INFO", "replication")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(field(info, name), 10, 64)
}

// online checks both ends: only the master knows whether a replica caught up, and the master
// detects a lost replica late.
func online(ctx context.Context, master *Server, replicas []*Server) error {
	info, err := master.queryText(ctx, "INFO", "replication")
	if err != nil {
		return err
	}
	if role := field(info, "role"); role != "master" {
		return fmt.Errorf("%s: role:%s, want master", master.Addr(), role)
	}
	for _, replica := range replicas {
		if !listed(info, replica) {
			return fmt.Errorf("%s: %s is not one of its online replicas", master.Addr(), replica.Addr())
		}
		if err := follows(ctx, replica, master); err != nil {
			return err
		}
	}
	return nil
}

// listed searches for "slave0:ip=127.0.0.1,port=1234,state=online,…".
func listed(info string, replica *Server) bool {
	want := fmt.Sprintf("port=%d,state=online,", replica.port)
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "slave") && strings.Contains(line, want) {
			return true
		}
	}
	return false
}

func follows(ctx context.Context, replica, master *Server) error {
	info, err := replica.queryText(ctx, "INFO", "replication")
	if err != nil {
		return err
	}
	port, link := field(info, "master_port"), field(info, "master_link_status")
	if port != strconv.Itoa(master.port) || link != "up" {
		return fmt.Errorf("%s: master_port:%s master_link_status:%s, want %d and up", replica.Addr(), port, link, master.port)
	}
	return nil
}
