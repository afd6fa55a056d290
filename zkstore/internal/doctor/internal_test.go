package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/zkstore/internal/greeting"
)

// Each reply that a test server does not give should be a finding about its server.
func TestReplies(t *testing.T) {
	t.Parallel()
	second := server{shortest: 4 * time.Second, longest: 40 * time.Second}
	version := func(text string) *server {
		return &server{shortest: second.shortest, longest: second.longest, words: map[string]string{"srvr": "Zookeeper version: " + text + ", built on x\nMode: follower\n"}}
	}
	settings := func(text string, shortest time.Duration) *server {
		s := version("3.9.5")
		s.words["conf"], s.shortest = text, shortest
		return s
	}
	for _, c := range []struct {
		tick time.Duration
		s    *server
		want string
	}{
		{0, version("3.4.14-x"), "critical: version on a:1\n"},
		{0, version("3.5.9-x"), "warning: version on a:1\n  found  ZooKeeper 3.5.9 has the flaw ZOOKEEPER-4785\n"},
		{0, version("3.8.4-x"), "warning: version on a:1\n"},
		{0, version("3.9.1-x"), "warning: version on a:1\n"},
		{0, version("3.9.3-x"), "the flaw ZOOKEEPER-4925\n"},
		{0, version("x"), "unchecked: version on a:1\n"},
		{0, version("3.8.5-x"), "unchecked: words on a:1\n"},
		{0, version("3.9.2-x"), "not checked: whether a session timeout is shorter than two ticks; whether followers are in sync\n"},
		{0, version("3.10.0-x"), "words conf, mntr\n"},
		{0, settings("tickTime=2000\n", 2*time.Second), "critical: tick on a:1\n  found  tickTime is 2s, but the store assumes 1s\n"},
		{time.Second, settings("tickTime=2000\n", 4*time.Second), "critical: tick on a:1\n  found  tickTime is 2s, but the store assumes 1s\n"},
		{2 * time.Second, settings("tickTime=2000\n", 3*time.Second), "warning: settings on a:1\n"},
		{0, &server{err: greeting.ErrSilent}, "warning: leader on a:1\n"},
		{0, &server{readOnly: true}, "warning: read-only on a:1\n"},
		{0, &server{err: errTest}, "warning: unreachable on a:1\n"},
		{0, settings("", 6*time.Second), "warning: ttl\n  found  the shortest session timeout is 6s\n  so     a TTL below 3s is refused"},
		{0, &server{shortest: time.Second, longest: 10 * time.Second}, "note: session\n  found  the longest session timeout is 10s\n  so     a lock with a TTL over 5s is a persistent znode"},
	} {
		other := second
		other.addr, c.s.addr = "b:1", "a:1"
		other.words = map[string]string{"srvr": "Zookeeper version: 3.9.5-x\n", "conf": "tickTime=1000\n", "mntr": "zk_version\t3.9.5\n"}
		e := &examination{Server: checkup.Server{Report: new(checkup.Report), Ctx: t.Context()}, target: Target{Tick: c.tick, Slack: func(time.Duration) time.Duration { return 5 * time.Second }}}
		e.servers = []*server{c.s, &other}
		e.checkServers()
		e.checkWords()
		e.checkSessions()
		e.checkTick()
		if found := e.Findings(); !strings.Contains(found.String(), c.want) {
			t.Errorf("want %q, found:\n%v", c.want, found)
		}
	}
}

type testError string

func (e testError) Error() string { return string(e) }

const errTest = testError("refused")

func TestVersions(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][][]int{
		"":               {{3, 8, 5}, {3, 8, 6}, {3, 9, 2}, {3, 9, 4}, {3, 9, 5}, {3, 10, 0}, {4, 0, 0}},
		"ZOOKEEPER-4785": {{3, 5, 0}, {3, 6, 4}, {3, 7, 2}, {3, 8, 4}, {3, 9, 0}, {3, 9, 1}},
		"ZOOKEEPER-4925": {{3, 9, 3}},
	} {
		for _, version := range all {
			if have := flawOf(version); have != want {
				t.Errorf("%v: have %q, want %q", version, have, want)
			}
		}
	}
}
