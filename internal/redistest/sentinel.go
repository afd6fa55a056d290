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

	"github.com/dibslock/dibs/redisstore"
)

// masterName is what the sentinels call the master, whichever server that is.
const masterName = "mymaster"

// Sentinels is a master and its replicas, with sentinels that watch over them
// and promote a replica when the master has gone. Who is master changes, so ask.
// Its methods may be used while servers die, but by one caller at a time.
type Sentinels struct {
	MasterName string
	Servers    []*Server // the first one began as the master
	Sentinels  []*Server
}

// StartSentinels starts a master, replicas, and sentinels, all of which know each
// other when it returns, and stops them with the test. The args are for the
// master and the replicas; see [StartServer], and [Start] for what happens where
// no server is installed. A password given with --requirepass is that of
// replication too, and the sentinels know it; they have none themselves. It takes
// Redis 7.
//
// A master is down after half a second without an answer, in the opinion of a
// majority of all sentinels. A test that pauses servers for longer than that and
// wants no failover says so to each sentinel: SENTINEL SET mymaster
// down-after-milliseconds 60000.
func StartSentinels(t testing.TB, replicas, sentinels int, args ...string) *Sentinels {
	t.Helper()
	r := StartReplicated(t, replicas, args...)
	s := &Sentinels{MasterName: masterName, Servers: append([]*Server{r.Master}, r.Replicas...)}
	for range sentinels {
		s.Sentinels = append(s.Sentinels, newSentinel(t, r.Master, sentinels/2+1))
	}
	attendAll(t, s.Sentinels...)
	if err := s.WaitComplete(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newSentinel writes the file in which a sentinel keeps what it knows. The first
// version names only the master; the sentinel finds the others through it.
//
// The failover timeout is short because the next try after a vote that nobody
// has won comes two of them later.
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
	return &Server{dir: dir, sentinel: file, settle: hasten}
}

// hasten shortens periods that no configuration file can, and that a sentinel
// forgets when it ends: how often it sends PING, reads INFO, tells the others what
// it knows, and asks them. They are 1, 10, 2 and 1 s.
//
// A sentinel connects again once in a PING period, so that one must be well below
// the time after which a master is down: a promotion ends connections. And one that
// hears a replica call itself a master for four periods of telling makes it a
// replica again, so these must outlast a planned promotion, which the sentinel in
// charge may notice a second late: it reads INFO once a second meanwhile.
func hasten(ctx context.Context, c *Conn) error {
	_, err := c.Call(ctx, "SENTINEL", "DEBUG",
		"PING-PERIOD", "200",
		"INFO-PERIOD", "200",
		"PUBLISH-PERIOD", "500",
		"ASK-PERIOD", "100")
	return err
}

// Addrs are the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return addrs(s.Sentinels) }

// Master is the server that a majority of all sentinels name as the master. It
// may be dead: they take a while to notice. The error says what they say if that
// is no majority.
func (s *Sentinels) Master() (*Server, error) { return s.elected(context.Background()) }

func (s *Sentinels) elected(ctx context.Context) (*Server, error) {
	votes := make(map[*Server]int)
	errs := []error{errors.New("redistest: no majority of the sentinels names one master")}
	for _, sentinel := range alive(s.Sentinels) {
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

// masterOf is the master in the opinion of one sentinel.
func (s *Sentinels) masterOf(ctx context.Context, sentinel *Server) (*Server, error) {
	value, err := sentinel.ask(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
	if err != nil {
		return nil, err
	}
	pair, _ := value.([]any)
	if len(pair) != 2 {
		return nil, fmt.Errorf("%s: no address of a master: %v", sentinel.Addr(), value)
	}
	return find(s.Servers, net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1])))
}

// KillMaster kills the master as a crash would and returns it. A replica takes its
// place soon: see WaitPromoted.
func (s *Sentinels) KillMaster() (*Server, error) {
	master, err := s.Master()
	if err != nil {
		return nil, err
	}
	master.Kill()
	return master, nil
}

// WaitPromoted waits until a majority of the sentinels name another master than
// old, which is dead or paused, and this one agrees. It returns the new master. The remaining replicas,
// and a sentinel or two, may hear of it later: see WaitComplete. It fails after
// 30 s.
func (s *Sentinels) WaitPromoted(old *Server) (*Server, error) {
	var promoted *Server
	err := await("another master is promoted", func(ctx context.Context) error {
		master, err := s.elected(ctx)
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

// Failover has the sentinels promote a replica of a master that lives, as before
// its maintenance, and waits until the old master is a replica and all is
// complete. It returns the new master. Until it is told, the old one goes on
// accepting writes, which are lost then.
func (s *Sentinels) Failover() (*Server, error) {
	if err := s.WaitComplete(); err != nil {
		return nil, err // a failover is refused while another one is under way
	}
	old, err := s.Master()
	if err != nil {
		return nil, err
	}
	if err := s.order(); err != nil {
		return nil, err
	}
	promoted, err := s.WaitPromoted(old)
	if err != nil {
		return nil, err
	}
	return promoted, s.WaitComplete()
}

// order has one sentinel begin a failover. It may have read no replica's INFO of
// late, on a busy machine; then it is asked again.
func (s *Sentinels) order() error {
	sentinels := alive(s.Sentinels)
	if len(sentinels) == 0 {
		return errors.New("redistest: no sentinel runs")
	}
	var outcome error
	err := await("a sentinel finds a replica to promote", func(ctx context.Context) error {
		_, outcome = sentinels[0].ask(ctx, "SENTINEL", "FAILOVER", s.MasterName)
		var refusal redisstore.ServerError
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

// Rejoin restarts a server that was killed, and waits until all is complete.
//
// It starts as a replica of the present master. One that came back with the
// arguments it began with, as after [Server.Restart], could come back as an empty
// master that accepts writes until the sentinels demote it. A server that the
// sentinels have not replaced yet comes back that way.
func (s *Sentinels) Rejoin(server *Server) error {
	if !slices.Contains(s.Servers, server) {
		return errStranger
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

// WaitComplete waits until the servers and sentinels that run (a paused one does)
// form a whole: all sentinels name the same master, know all its replicas and each other, and see
// nothing wrong with them, and the replicas replicate from that master. After it
// the next failover is as quick as the first one. It fails after 30 s, and says
// what is missing.
func (s *Sentinels) WaitComplete() error {
	return await("servers and sentinels are complete", s.complete)
}

func (s *Sentinels) complete(ctx context.Context) error {
	master, err := s.elected(ctx)
	if err != nil {
		return err
	}
	if err := online(ctx, master, without(master, alive(s.Servers))); err != nil {
		return err
	}
	for _, sentinel := range alive(s.Sentinels) {
		if err := s.informed(ctx, sentinel, master); err != nil {
			return fmt.Errorf("sentinel %s: %w", sentinel.Addr(), err)
		}
	}
	return nil
}

// informed tells whether one sentinel sees all as it is.
func (s *Sentinels) informed(ctx context.Context, sentinel, master *Server) error {
	named, err := s.masterOf(ctx, sentinel)
	if err != nil {
		return err
	}
	if named != master {
		return fmt.Errorf("names %s as the master, not %s", named.Addr(), master.Addr())
	}
	if _, err := sentinel.ask(ctx, "SENTINEL", "CKQUORUM", s.MasterName); err != nil {
		return err
	}
	about, err := sentinel.ask(ctx, "SENTINEL", "MASTER", s.MasterName)
	if err != nil {
		return err
	}
	if flags := pairs(about)["flags"]; flags != "master" {
		return fmt.Errorf("the master is %q", flags)
	}
	if err := s.sees(ctx, sentinel, "REPLICAS", "slave", s.Servers, master); err != nil {
		return err
	}
	return s.sees(ctx, sentinel, "SENTINELS", "sentinel", s.Sentinels, sentinel)
}

// sees wants a sentinel's list to have every server but one, those that run in
// good health. What a replica is said to be comes from its own last INFO.
func (s *Sentinels) sees(ctx context.Context, sentinel *Server, list, health string, servers []*Server, but *Server) error {
	value, err := sentinel.ask(ctx, "SENTINEL", list, s.MasterName)
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
		have := flags[server.Addr()]
		if server != but && server.running() && have != health {
			return fmt.Errorf("%s lists %s as %q", strings.ToLower(list), server.Addr(), have)
		}
	}
	return nil
}

// pairs reads a reply of names and values by turns.
func pairs(value any) map[string]string {
	items, _ := value.([]any)
	m := make(map[string]string)
	for i := 1; i < len(items); i += 2 {
		m[fmt.Sprint(items[i-1])] = fmt.Sprint(items[i])
	}
	return m
}
