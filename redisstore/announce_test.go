package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// deadWaiter adds a waiter to a queue, last heard a minute ago.
func deadWaiter(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	heard := strconv.FormatInt(time.Now().Add(-time.Minute).UnixMicro(), 10)
	server.MustCmd(t, "ZADD", "{"+name+"}"+queue, heard, "0000000000000001 1000 1/1 dead dead:1")
	server.MustCmd(t, "PEXPIRE", "{"+name+"}"+queue, "60000")
}

// A multi-lock over several slots awaits the dead waiters in all slots at once.
func TestDeadWaitersOfSlotsAreAwaitedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	var names []string
	for i := range 6 {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		deadWaiter(t, server, name)
	}
	locks := dibs.New(open(t, server, redisstore.HiddenCluster(), redisstore.Prefix("")))
	t.Cleanup(func() { _ = locks.Close() })
	begin := time.Now()
	l, err := locks.All(names).Lock(t.Context())
	took := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	t.Logf("FIGURE dead waiters in %d slots: all names after %v", len(names), took)
	if most := 5 * time.Second; took > most { // 6 times 2.75 s if sequential
		t.Errorf("dead waiters in %d slots: all names after %v, want %v at most", len(names), took, most)
	}
}

// Announcements should never make a live waiter dead: neither after a step of the server's clock
// nor after a server stop, during which no heartbeat was processed.
func TestAnnouncementsKeepLiveWaiters(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		pause time.Duration // since the announcement before, by the server's clock
		step  time.Duration
		dead  bool
	}{
		"no pause": {0, 0, true},
		"stopped":  {6 * time.Second, 0, false},
		"stepped":  {0, 6 * time.Second, false},
		"back":     {0, -time.Hour, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			clock := &serverClock{server: redistest.StartClusterNode(t)}
			s := clock.open(t, redisstore.HiddenCluster(), redisstore.Prefix(""))
			p := watchingClient(t, s)
			silent, other := p.request("n"), p.request("n")
			h := p.request("n")
			p.mustAcquire(h)
			p.mustWait(silent)
			// The waiter was last heard 5.5 s ago, before a stop, or just now, before a step. Other
			// calls have come for 20 s, without a pause until the last call.
			now := time.Now()
			heard := now
			if test.step == 0 {
				heard = now.Add(-5500 * time.Millisecond)
			}
			last := now.Add(-test.pause)
			for _, entry := range clock.server.MustCmd(t, "ZRANGE", "{n}"+queue, "0", "-1").([]any) {
				clock.server.MustCmd(t, "ZADD", "{n}"+queue, strconv.FormatInt(now.Add(-20*time.Second).UnixMicro(), 10), entry.(string))
				clock.server.MustCmd(t, "HSET", "{n}"+meta, entry.(string), strconv.FormatInt(heard.UnixMicro(), 10),
					"~heard", fmt.Sprintf("%d %d ", now.Add(-20*time.Second).UnixMicro(), last.UnixMicro()))
			}
			clock.server.MustCmd(t, "PEXPIRE", "{n}"+meta, "60000")
			clock.step(t, test.step)
			for range 3 {
				s.Announce(t.Context(), []string{"n"})
			}
			clock.server.MustCmd(t, "DEL", "n") // the lease ended
			if reply := p.acquire(other); reply.Held != test.dead {
				t.Errorf("another waiter: %+v, want held: %v", reply, test.dead)
			}
		})
	}
}

// An announcement changes neither lock nor queue. It leaves nothing at names without waiters.
func TestAnnounceChangesNoLock(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	s := open(t, server, redisstore.HiddenCluster(), redisstore.Prefix(""))
	p := watchingClient(t, s)
	p.mustAcquire(p.request("held"))
	p.mustAcquire(p.request("queued"))
	p.mustWait(p.request("queued"))
	contents := func() (all []any) {
		for _, key := range []string{"held", "queued", "{queued}" + queue} {
			all = append(all, server.MustCmd(t, "DUMP", key))
		}
		return all
	}
	keys, before := keysOf(t, server), contents()
	s.Announce(t.Context(), []string{"free", "held", "queued"})
	if after := contents(); !slices.Equal(after, before) {
		t.Errorf("lock or queue: %q, before %q", after, before)
	}
	want := append(keys, "{queued}"+meta)
	slices.Sort(want)
	if after := keysOf(t, server); !slices.Equal(after, want) {
		t.Errorf("keys %q, want %q", after, want)
	}
	wantExpiringKeys(t, server)
}
