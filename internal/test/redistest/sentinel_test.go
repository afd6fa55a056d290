package redistest

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func startSentinels(t *testing.T, args ...string) *Sentinels {
	t.Helper()
	begin := time.Now()
	s := StartSentinels(t, 2, 3, args...)
	t.Logf("started in %v", time.Since(begin))
	return s
}

// After the first crash, further crashes are handled as well.
func TestSentinelsReplaceADeadMaster(t *testing.T) {
	t.Parallel()
	s := startSentinels(t)
	if first, err := s.Master(); err != nil || first != s.Servers[0] {
		t.Errorf("got %v, %v, want the first server", first, err)
	}
	if got := s.Addrs(); len(got) != 3 || got[2] != s.Sentinels[2].Addr() {
		t.Errorf("got sentinels at %v", got)
	}
	for range 3 {
		killAndPromote(t, s)
	}
}

// killAndPromote kills the master, and returns when all is complete.
func killAndPromote(t *testing.T, s *Sentinels) {
	t.Helper()
	begin := time.Now()
	old, err := s.KillMaster()
	if err != nil {
		t.Fatal(err)
	}
	promoted, err := s.WaitPromoted(old)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("promoted in %v", time.Since(begin))
	if promoted == old || !slices.Contains(s.Servers, promoted) {
		t.Fatalf("%s is the same server as %s", promoted.Addr(), old.Addr())
	}
	promoted.MustCmd(t, "SET", "k", begin.String())
	if err := s.Rejoin(old); err != nil {
		t.Fatal(err)
	}
	t.Logf("complete in %v", time.Since(begin))
	if got := old.MustCmd(t, "GET", "k"); got != begin.String() {
		t.Errorf("the old master has %v, want what the new one has", got)
	}
}

// The remaining sentinels know the servers' password.
func TestSentinelsWithoutOneOfThem(t *testing.T) {
	t.Parallel()
	s := startSentinels(t, "--requirepass", "sesame")
	s.Sentinels[0].Kill()
	killAndPromote(t, s)
	if err := s.Sentinels[0].Restart(); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitComplete(); err != nil {
		t.Fatal(err)
	}
	named, err := s.masterOf(t.Context(), s.Sentinels[0])
	if master, err2 := s.Master(); err != nil || err2 != nil || named != master {
		t.Errorf("the paused sentinel names %v, %v, the others %v, %v", named, err, master, err2)
	}

	s.Sentinels[1].Kill()
	s.Sentinels[2].Kill()
	if master, err := s.Master(); err == nil {
		t.Errorf("one sentinel of three was a majority for %s", master.Addr())
	}
}

func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	s := startSentinels(t)
	old, err := s.Master()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		begin := time.Now()
		promoted, err := s.Failover()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("complete in %v", time.Since(begin))
		if promoted == old || !old.running() {
			t.Errorf("%s replaced %s, which runs: %v", promoted.Addr(), old.Addr(), old.running())
		}
		old = promoted
	}
}

// Before a promotion the killed master comes back as the master.
func TestRejoinBeforeThePromotion(t *testing.T) {
	t.Parallel()
	s := startSentinels(t)
	old, err := s.KillMaster()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rejoin(old); err != nil {
		t.Fatal(err)
	}
	killAndPromote(t, s)
}

// A test should be able to restart a dead master with its initial arguments.
func TestAnOldMasterIsDemoted(t *testing.T) {
	t.Parallel()
	s := startSentinels(t)
	old, err := s.KillMaster()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitPromoted(old); err != nil {
		t.Fatal(err)
	}
	if err := old.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitComplete(); err != nil {
		t.Fatal(err)
	}
	if master, err := s.Master(); err != nil || master == old {
		t.Errorf("got %v, %v, want another master than the old one", master, err)
	}
}

func TestRejoinOfAnotherServer(t *testing.T) {
	s := &Sentinels{}
	if err := s.Rejoin(&Server{}); !errors.Is(err, errUnknownServer) {
		t.Errorf("got %v, want %v", err, errUnknownServer)
	}
}
