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

// Several crashes show that what one leaves behind is no obstacle to the next.
func TestSentinelsReplaceADeadMaster(t *testing.T) {
	t.Parallel()
	s := startSentinels(t)
	if first, err := s.Master(); err != nil || first != s.Servers[0] {
		t.Errorf("have %v, %v, want the first server", first, err)
	}
	if have := s.Addrs(); len(have) != 3 || have[2] != s.Sentinels[2].Addr() {
		t.Errorf("have sentinels at %v", have)
	}
	for range 3 {
		drillSentinels(t, s)
	}
}

// drillSentinels kills the master, and returns when all is well again.
func drillSentinels(t *testing.T, s *Sentinels) {
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
		t.Fatalf("%s is no other server than %s", promoted.Addr(), old.Addr())
	}
	promoted.MustCmd(t, "SET", "k", begin.String())
	if err := s.Rejoin(old); err != nil {
		t.Fatal(err)
	}
	t.Logf("complete in %v", time.Since(begin))
	if have := old.MustCmd(t, "GET", "k"); have != begin.String() {
		t.Errorf("the old master has %v, want what the new one has", have)
	}
}

// The sentinels that are left know the password of the servers.
func TestSentinelsWithoutOneOfThem(t *testing.T) {
	t.Parallel()
	s := startSentinels(t, "--requirepass", "sesame")
	s.Sentinels[0].Kill()
	drillSentinels(t, s)
	if err := s.Sentinels[0].Restart(); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitComplete(); err != nil {
		t.Fatal(err)
	}
	named, err := s.masterOf(t.Context(), s.Sentinels[0])
	if master, err2 := s.Master(); err != nil || err2 != nil || named != master {
		t.Errorf("the sentinel that slept names %v, %v, the others %v, %v", named, err, master, err2)
	}

	s.Sentinels[1].Kill()
	s.Sentinels[2].Kill()
	if master, err := s.Master(); err == nil {
		t.Errorf("one sentinel of three is enough to name %s", master.Addr())
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
			t.Errorf("%s took over from %s, which runs: %v", promoted.Addr(), old.Addr(), old.running())
		}
		old = promoted
	}
}

// Where nothing has been noticed yet, the dead master comes back as the master.
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
	drillSentinels(t, s)
}

// A test may restart a dead master with the arguments it began with.
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
		t.Errorf("have %v, %v, want another master than the old one", master, err)
	}
}

func TestRejoinOfAStranger(t *testing.T) {
	s := &Sentinels{}
	if err := s.Rejoin(&Server{}); !errors.Is(err, errStranger) {
		t.Errorf("have %v, want %v", err, errStranger)
	}
}
