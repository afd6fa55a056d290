package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Replicated is a master and its replicas. Nobody watches over them: a dead
// master stays dead, and the fields keep saying who began as what.
type Replicated struct {
	Master   *Server
	Replicas []*Server
}

// StartReplicated starts a master and replicas of it, which replicate when it
// returns, and stops them with the test. All get the same args; see
// [StartServer], and [Start] for what happens where no server is installed. A
// password given with --requirepass is that of replication too.
//
// A replica that is restarted replicates again. A master that is restarted is
// empty, and so are its replicas soon after.
func StartReplicated(t testing.TB, replicas int, args ...string) *Replicated {
	t.Helper()
	r := &Replicated{Master: attend(t, &Server{dir: t.TempDir(), args: replicating(args)})}
	for range replicas {
		replica := &Server{dir: t.TempDir(), args: replicating(args), master: r.Master}
		r.Replicas = append(r.Replicas, replica)
	}
	attendAll(t, r.Replicas...)
	if err := r.WaitOnline(); err != nil {
		t.Fatal(err)
	}
	return r
}

// WaitOnline waits until all replicas that run replicate from the master. It
// fails after 30 s, and says who does not.
func (r *Replicated) WaitOnline() error {
	return await("the replicas are online", func(ctx context.Context) error {
		return online(ctx, r.Master, alive(r.Replicas))
	})
}

// online asks both ends: the master, because only it knows whether a replica has
// caught up, and the replicas, because the master takes a while to notice that
// one has gone.
func online(ctx context.Context, master *Server, replicas []*Server) error {
	info, err := master.askText(ctx, "INFO", "replication")
	if err != nil {
		return err
	}
	if role := field(info, "role"); role != "master" {
		return fmt.Errorf("%s: role:%s, want master", master.Addr(), role)
	}
	for _, replica := range replicas {
		if !listed(info, replica) {
			return fmt.Errorf("%s: %s is not among its online replicas", master.Addr(), replica.Addr())
		}
		if err := follows(ctx, replica, master); err != nil {
			return err
		}
	}
	return nil
}

// listed looks for "slave0:ip=127.0.0.1,port=1234,state=online,…".
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
	info, err := replica.askText(ctx, "INFO", "replication")
	if err != nil {
		return err
	}
	port, link := field(info, "master_port"), field(info, "master_link_status")
	if port != strconv.Itoa(master.port) || link != "up" {
		return fmt.Errorf("%s: master_port:%s master_link_status:%s, want %d and up", replica.Addr(), port, link, master.port)
	}
	return nil
}
