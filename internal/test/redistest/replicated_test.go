package redistest

import (
	"strings"
	"testing"
)

func TestReplicated(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 2, "--requirepass", "sesame")
	r.Master.MustCmd(t, "SET", "k", "v")
	if got := r.Master.MustCmd(t, "WAIT", "2", "5000"); got != int64(2) {
		t.Fatalf("%v replicas got the write, want 2", got)
	}
	for _, replica := range r.Replicas {
		if got := replica.MustCmd(t, "GET", "k"); got != "v" {
			t.Errorf("a replica has %v, want v", got)
		}
		if _, err := replica.Cmd("SET", "k", "w"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("a write to a replica: got %v, want READONLY", err)
		}
	}
}

func TestAReplicaComesBack(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 1)
	r.Master.MustCmd(t, "SET", "k", "v")
	r.Replicas[0].Kill()
	if err := r.WaitOnline(); err != nil { // for the running replicas
		t.Error(err)
	}
	if err := r.Replicas[0].Restart(); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitOnline(); err != nil {
		t.Fatal(err)
	}
	if got := r.Replicas[0].MustCmd(t, "GET", "k"); got != "v" {
		t.Errorf("got %v, want v", got)
	}
}

func TestOnlineIsForReplicasOfThisMaster(t *testing.T) {
	t.Parallel()
	r, other := StartReplicated(t, 1), Start(t)
	if err := online(t.Context(), r.Replicas[0], nil); err == nil {
		t.Error("a replica is accepted as a master")
	}
	if err := online(t.Context(), r.Master, []*Server{other}); err == nil {
		t.Error("an unrelated server is accepted as a replica")
	}
	if err := follows(t.Context(), r.Replicas[0], other); err == nil {
		t.Error("a replica is accepted for an unrelated master")
	}
}

func TestWaitCaughtUp(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 1)
	replica := r.Replicas[0]
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	r.Master.MustCmd(t, "SET", "k", "v")
	caughtUp := make(chan error, 1)
	go func() { caughtUp <- WaitCaughtUp(r.Master, replica) }()
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-caughtUp; err != nil {
		t.Fatal(err)
	}
	if got := replica.MustCmd(t, "GET", "k"); got != "v" {
		t.Errorf("the replica has %v, want v", got)
	}
	written, err := offset(t.Context(), r.Master, "master_repl_offset")
	if err != nil {
		t.Fatal(err)
	}
	if err := hasRead(t.Context(), replica, written+1_000_000); err == nil {
		t.Error("a replica has read what its master has not written")
	}
	r.Master.Kill()
	if err := WaitCaughtUp(r.Master, replica); err == nil {
		t.Error("a replica has caught up with a dead master")
	}
}
