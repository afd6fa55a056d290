package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// masterName is the sentinels' name of the master, whichever server it is.
const masterName = "mymaster"

// Sentinels is a master and its replicas, with sentinels to promote a replica when the master
// fails. The master changes, so query it. Methods can be called while servers fail, but only by one
// goroutine at a time.
type Sentinels struct {
	MasterName string
	Servers    []*Server // the first is the initial master
	Sentinels  []*Server
}

// StartSentinels starts a master, replicas and sentinels, and stops them with the test. When it
// returns, they all know each other. The args are for the master and the replicas; see
// [StartServer], and [Start] for the case without an installed server. A password in --requirepass
// is also used for replication and known to the sentinels, which have no password themselves.
// Before Redis 7 sentinels are slow: see shortenPeriods.
//
// A master counts as down when a majority of sentinels received no reply for half a second. A test
// that pauses servers for longer without a failover must configure each sentinel: SENTINEL SET
// mymaster down-after-milliseconds 60000.
func StartSentinels(t testing.TB, replicas, sentinels int, args ...string) *Sentinels {
	t.Helper()
	r := StartReplicated(t, replicas, args...)
	s := &Sentinels{MasterName: masterName, Servers: append([]*Server{r.Master}, r.Replicas...)}
	for range sentinels {
		s.Sentinels = append(s.Sentinels, newSentinel(t, r.Master, sentinels/2+1))
	}
	startAll(t, s.Sentinels...)
	if err := s.WaitComplete(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newSentinel writes a sentinel's configuration file, which is also its state. At first it names
// only the master; the sentinel finds the other servers through it.
//
// The failover timeout is short, because after a vote without a winner the next try comes
// two timeouts later.
func newSentinel(t testing.TB, master *Server, quorum int) *Server {
	t.Helper()
	conf := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, master.port, quorum),
		"sentinel down-after-milliseconds " + masterName + " 500",
		"sentinel failover-timeout " + masterName + " 1500",
		"sentinel parallel-syncs " + masterName + " 1",
	}
	if password := password(master.args); password != "" {
		conf = append(conf, fmt.Sprintf("sentinel auth-pass %s %q", masterName, password))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: dir, sentinel: file}
	s.afterStart = func(ctx context.Context, c *Conn) error {
		if s.Before7() {
			return nil
		}
		return shortenPeriods(ctx, c)
	}
	return s
}

// shortenPeriods shortens periods that no configuration file can set and a sentinel forgets when it
// ends: for PING, INFO, publishing its state and querying the others. They are 1, 10, 2 and 1 s.
// Before Redis 7 they cannot be changed.
//
// A sentinel reconnects once in a PING period. So this period must be well below the time after
// which a master is down, because a promotion ends connections. If a replica reports itself as a
// master for four publish periods, a sentinel demotes it. So four such periods must last longer
// than a planned promotion, which the leading sentinel may detect a second late, because it reads
// INFO once a second during a failover.
func shortenPeriods(ctx context.Context, c *Conn) error {
	_, err := c.Call(ctx, "SENTINEL", "DEBUG",
		"PING-PERIOD", "200",
		"INFO-PERIOD", "200",
		"PUBLISH-PERIOD", "500",
		"ASK-PERIOD", "100")
	return err
}

// Addrs returns the sentinels' addresses.
func (s *Sentinels) Addrs() []string { return addrs(s.Sentinels) }

// Master returns the master named by a majority of all sentinels. It may be dead, because sentinels
// detect a crash late. The error contains the sentinels' answers if no majority agrees.
func (s *Sentinels) Master() (*Server, error) { return s.majorityMaster(context.Background()) }

func (s *Sentinels) majorityMaster(ctx context.Context) (*Server, error) {
	votes := make(map[*Server]int)
	errs := []error{errors.New("redistest: no majority of the sentinels names one master")}
	for _, sentinel := range runningServers(s.Sentinels) {
		master, err := s.masterOf(ctx, sentinel)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		votes[master]++
		if votes[master] > len(s.Sentinels)/2 {
			return master, nil
		}
		errs = append(errs, fmt.Errorf("%s names %s", sentinel.Addr(), master.Addr()))
	}
	return nil, errors.Join(errs...)
}

// masterOf returns the master according to a single sentinel.
func (s *Sentinels) masterOf(ctx context.Context, sentinel *Server) (*Server, error) {
	value, err := sentinel.query(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
	if err != nil {
		return nil, err
	}
	pair, _ := value.([]any)
	if len(pair) != 2 {
		return nil, fmt.Errorf("%s: no master address: %v", sentinel.Addr(), value)
	}
	return find(s.Servers, net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1])))
}

// KillMaster kills the master, as a crash would, and returns it. A replica is promoted
// soon: see WaitPromoted.
func (s *Sentinels) KillMaster() (*Server, error) {
	master, err := s.Master()
	if err != nil {
		return nil, err
	}
	master.Kill()
	return master, nil
}

// WaitPromoted waits until most sentinels name another master than old, which is dead or paused,
// and the named server agrees. It returns the new master. The remaining replicas and a few
// sentinels may learn about it later: see WaitComplete. It fails after 30 s.
func (s *Sentinels) WaitPromoted(old *Server) (*Server, error) {
	var promoted *Server
	err := waitUntil("another master is promoted", func(ctx context.Context) error {
		master, err := s.majorityMaster(ctx)
		if err != nil {
			return err
		}
		if master == old {
			return fmt.Errorf("it is still %s", old.Addr())
		}
		promoted = master
		return online(ctx, master, nil)
	})
	if err != nil {
		return nil, err
	}
	return promoted, nil
}

// Failover promotes a running master's replica, as for maintenance, and waits until the old master
// is a replica and all is complete. It returns the new master. Until its demotion the old master
// accepts writes, which are lost.
func (s *Sentinels) Failover() (*Server, error) {
	if err := s.WaitComplete(); err != nil {
		return nil, err // a failover is refused during another one
	}
	old, err := s.Master()
	if err != nil {
		return nil, err
	}
	if err := s.startFailover(); err != nil {
		return nil, err
	}
	promoted, err := s.WaitPromoted(old)
	if err != nil {
		return nil, err
	}
	return promoted, s.WaitComplete()
}

// startFailover makes a sentinel start a failover. It retries if the sentinel lacks recent INFO
// from a replica, as on a busy machine.
func (s *Sentinels) startFailover() error {
	sentinels := runningServers(s.Sentinels)
	if len(sentinels) == 0 {
		return errors.New("redistest: no sentinel is running")
	}
	var outcome error
	err := waitUntil("a sentinel finds a replica to promote", func(ctx context.Context) error {
		_, outcome = sentinels[0].query(ctx, "SENTINEL", "FAILOVER", s.MasterName)
		var refusal redisconn.ServerError
		if errors.As(outcome, &refusal) && strings.HasPrefix(string(refusal), "NOGOODSLAVE") {
			return refusal
		}
		return nil
	})
	if err != nil {
		return err
	}
	return outcome
}

// Rejoin restarts a killed server and waits until all is complete.
//
// The server starts as the current master's replica. With its initial arguments, as after
// [Server.Restart], it could come back as an empty master that accepts writes until the sentinels
// demote it. A server still considered the master by the sentinels does come back empty.
func (s *Sentinels) Rejoin(server *Server) error {
	if !slices.Contains(s.Servers, server) {
		return errUnknownServer
	}
	master, err := s.Master()
	if err != nil {
		return err
	}
	if master == server {
		master = nil
	}
	if err := server.restartUnder(master); err != nil {
		return err
	}
	return s.WaitComplete()
}

// WaitComplete waits until all running servers and sentinels (including paused ones) are complete.
// Complete means that the sentinels name the same master, list its replicas and each other, and see
// no problem, and that the replicas replicate from this master. Then the next failover is as fast
// as the first. WaitComplete fails after 30 s and reports the missing condition.
func (s *Sentinels) WaitComplete() error {
	return waitUntil("servers and sentinels are complete", s.checkComplete)
}

func (s *Sentinels) checkComplete(ctx context.Context) error {
	master, err := s.majorityMaster(ctx)
	if err != nil {
		return err
	}
	if err := online(ctx, master, without(master, runningServers(s.Servers))); err != nil {
		return err
	}
	for _, sentinel := range runningServers(s.Sentinels) {
		if err := s.checkSentinel(ctx, sentinel, master); err != nil {
			return fmt.Errorf("sentinel %s: %w", sentinel.Addr(), err)
		}
	}
	return nil
}

// checkSentinel checks that a sentinel's state is correct.
func (s *Sentinels) checkSentinel(ctx context.Context, sentinel, master *Server) error {
	named, err := s.masterOf(ctx, sentinel)
	if err != nil {
		return err
	}
	if named != master {
		return fmt.Errorf("names %s as the master, not %s", named.Addr(), master.Addr())
	}
	if _, err := sentinel.query(ctx, "SENTINEL", "CKQUORUM", s.MasterName); err != nil {
		return err
	}
	about, err := sentinel.query(ctx, "SENTINEL", "MASTER", s.MasterName)
	if err != nil {
		return err
	}
	if flags := pairs(about)["flags"]; flags != "master" {
		return fmt.Errorf("the master is %q", flags)
	}
	if err := s.checkList(ctx, sentinel, "REPLICAS", "slave", s.Servers, master); err != nil {
		return err
	}
	return s.checkList(ctx, sentinel, "SENTINELS", "sentinel", s.Sentinels, sentinel)
}

// checkList checks that a sentinel's list contains every server but one, and the running servers
// are healthy. A replica's state comes from its own last INFO.
func (s *Sentinels) checkList(ctx context.Context, sentinel *Server, list, health string, servers []*Server, but *Server) error {
	value, err := sentinel.query(ctx, "SENTINEL", list, s.MasterName)
	if err != nil {
		return err
	}
	entries, _ := value.([]any)
	flags := make(map[string]string)
	for _, entry := range entries {
		about := pairs(entry)
		flags[net.JoinHostPort(about["ip"], about["port"])] = about["flags"]
		if down := about["master-link-status"]; down != "" && down != "ok" && about["flags"] == health {
			return fmt.Errorf("%s: master-link-status %s", about["name"], down)
		}
	}
	if len(flags) != len(servers)-1 {
		return fmt.Errorf("%s lists %d servers, want %d", list, len(flags), len(servers)-1)
	}
	for _, server := range servers {
		// Valkey keeps this flag after a failover: it is the sentinel's last state for the old
		// master.
		have := strings.TrimSuffix(flags[server.Addr()], ",master_down")
		if server != but && server.running() && have != health {
			return fmt.Errorf("%s lists %s as %q", strings.ToLower(list), server.Addr(), have)
		}
	}
	return nil
}

// pairs reads a reply with alternating names and values.
func pairs(value any) map[string]string {
	items, _ := value.([]any)
	m := make(map[string]string)
	for i := 1; i < len(items); i += 2 {
		m[fmt.Sprint(items[i-1])] = fmt.Sprint(items[i])
	}
	return m
}
