package redistest

import (
	"strings"
	"testing"
)

func TestReplicated(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 2, "--requirepass", "sesame")
	r.Master.MustCmd(t, "SET", "k", "v")
	if have := r.Master.MustCmd(t, "WAIT", "2", "5000"); have != int64(2) {
		t.Fatalf("%v replicas have the write, want 2", have)
	}
	for _, replica := range r.Replicas {
		if have := replica.MustCmd(t, "GET", "k"); have != "v" {
			t.Errorf("a replica has %v, want v", have)
		}
		if _, err := replica.Cmd("SET", "k", "w"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("a write to a replica: have %v, want READONLY", err)
		}
	}
}

func TestAReplicaComesBack(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 1)
	r.Master.MustCmd(t, "SET", "k", "v")
	r.Replicas[0].Kill()
	if err := r.WaitOnline(); err != nil { // of those that run
		t.Error(err)
	}
	if err := r.Replicas[0].Restart(); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitOnline(); err != nil {
		t.Fatal(err)
	}
	if have := r.Replicas[0].MustCmd(t, "GET", "k"); have != "v" {
		t.Errorf("have %v, want v", have)
	}
}

func TestOnlineIsForReplicasOfThisMaster(t *testing.T) {
	t.Parallel()
	r, stranger := StartReplicated(t, 1), Start(t)
	if err := online(t.Context(), r.Replicas[0], nil); err == nil {
		t.Error("a replica passes for a master")
	}
	if err := online(t.Context(), r.Master, []*Server{stranger}); err == nil {
		t.Error("a stranger passes for a replica")
	}
	if err := follows(t.Context(), r.Replicas[0], stranger); err == nil {
		t.Error("a replica passes for one of a stranger")
	}
}
