package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/internal/test/checkuptest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

const generous = 10 * time.Second

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func examine(t *testing.T, s *redisstore.Store) checkup.Findings {
	t.Helper()
	found, err := checkup.Examine(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.WantSorted(t, found)
	return found
}

func open(t *testing.T, server *redistest.Server, options ...redisstore.Option) *redisstore.Store {
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	return redisstore.New(conn, options...)
}

// nodeDo returns a node's Do, made from a Conn's.
func nodeDo(c interface {
	Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply)
}) func(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	return func(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
		c.Do(ctx, time.Time{}, cmds, replies)
	}
}

// want checks that a finding contains some texts.
func want(t *testing.T, found checkup.Findings, severity checkup.Severity, subject string, says ...string) {
	t.Helper()
	for _, f := range found {
		missing := func(part string) bool { return !strings.Contains(f.String(), part) }
		if f.Subject == subject && f.Severity == severity && !slices.ContainsFunc(says, missing) {
			return
		}
	}
	t.Errorf("no %v %q that says %q, but:\n%v", severity, subject, says, found)
}

func wantNone(t *testing.T, found checkup.Findings, subjects ...string) {
	t.Helper()
	for _, f := range found {
		if slices.Contains(subjects, f.Subject) {
			t.Errorf("found:\n%v", f)
		}
	}
}

func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable...)
	s := open(t, server)
	var found checkup.Findings
	for range 3 { // a busy machine is slow, which is a finding
		if found = examine(t, s); len(found) == 0 {
			break
		}
	}
	if len(found) > 0 || found.String() != "nothing found\n" || found.Worst() != checkup.Note {
		t.Errorf("have:\n%v", found)
	}
	keys, _ := server.MustCmd(t, "KEYS", "*").([]any)
	if key, _ := keys[0].(string); len(keys) != 1 || !strings.HasPrefix(key, "dibs:fence:") {
		t.Errorf("left: %q, want one highwater", keys)
	}
}

func TestDoctorOfSettings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	set := func(t *testing.T, pairs ...string) {
		t.Helper()
		before := server.MustCmd(t, "CONFIG", "GET", pairs[0]).([]any)[1].(string)
		server.MustCmd(t, append([]string{"CONFIG", "SET"}, pairs...)...)
		t.Cleanup(func() { server.MustCmd(t, "CONFIG", "SET", pairs[0], before) })
	}
	for _, c := range []struct {
		name     string
		settings [][2]string
		severity checkup.Severity
		subject  string
		says     []string
	}{
		{"evicts all", [][2]string{{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}}, checkup.Critical, "eviction", []string{"allkeys-lru", "100.0 MiB", "high-water marks"}},
		{"evicts what ends", [][2]string{{"maxmemory", "100mb"}, {"maxmemory-policy", "volatile-ttl"}}, checkup.Critical, "eviction", []string{"volatile-ttl", "noeviction"}},
		{"would evict", [][2]string{{"maxmemory-policy", "allkeys-lfu"}}, checkup.Note, "eviction", []string{"maxmemory 0"}},
		{"is full", [][2]string{{"maxmemory", "1kb"}}, checkup.Critical, "memory", []string{"OOM"}},
		{"is full, tried", [][2]string{{"maxmemory", "1kb"}}, checkup.Critical, "lock", []string{"OOM"}},
		{"saves nothing", nil, checkup.Warning, "persistence", []string{"nothing is written"}},
		{"snapshots", [][2]string{{"save", "3600 1"}}, checkup.Warning, "persistence", []string{"save 3600 1"}},
		{"needs replicas", [][2]string{{"min-replicas-to-write", "1"}}, checkup.Critical, "min-replicas", []string{"NOREPLICAS"}},
		{"needs replicas, tried", [][2]string{{"min-replicas-to-write", "1"}}, checkup.Critical, "lock", []string{"NOREPLICAS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pair := range c.settings {
				set(t, pair[:]...)
			}
			want(t, examine(t, s), c.severity, c.subject, c.says...)
		})
	}
}

func TestDoctorOfNearlyFullMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable...)
	server.MustCmd(t, "SETRANGE", "big", strconv.Itoa(30<<20), "x") // a SET would fill a buffer that the server frees later
	used := field(t, server.MustCmd(t, "INFO", "memory").(string), "used_memory")
	server.MustCmd(t, "CONFIG", "SET", "maxmemory", strconv.FormatInt(used+used/12, 10))
	found := examine(t, open(t, server))
	want(t, found, checkup.Warning, "memory", "OOM")
	wantNone(t, found, "lock")
}

func field(t *testing.T, info, name string) int64 {
	t.Helper()
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

func TestDoctorOfAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable...)
	s := open(t, server)
	for _, c := range []struct {
		fsync, late string
		severity    checkup.Severity
		says        string
	}{
		{"everysec", "no", checkup.Note, "every second"},
		{"no", "no", checkup.Warning, "operating system"},
		{"always", "yes", checkup.Warning, "no-appendfsync-on-rewrite"},
	} {
		server.MustCmd(t, "CONFIG", "SET", "appendfsync", c.fsync)
		server.MustCmd(t, "CONFIG", "SET", "no-appendfsync-on-rewrite", c.late)
		want(t, examine(t, s), c.severity, "persistence", c.says)
	}
}

func TestDoctorOfReplicas(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)

	found := examine(t, open(t, r.Master))
	want(t, found, checkup.Warning, "failover", "replicas: 1", "WithReplicas(1")
	want(t, found, checkup.Note, "split", "min-replicas-to-write")

	one := open(t, r.Master, redisstore.WithReplicas(1, 500*time.Millisecond))
	for range 3 { // a busy machine may not replicate in time
		if found = examine(t, one); found.Worst() < checkup.Critical {
			break
		}
	}
	wantNone(t, found, "failover", "split", "replicas", "lock")

	two := redisstore.WithReplicas(2, 50*time.Millisecond)
	found = examine(t, open(t, r.Master, two))
	want(t, found, checkup.Critical, "replicas", "1 of 2 replicas had the write")

	found = examine(t, open(t, r.Replicas[0]))
	want(t, found, checkup.Critical, "role", "a replica, of "+r.Master.Addr())
	want(t, found, checkup.Critical, "lock", "READONLY")

	r.Replicas[0].MustCmd(t, "CONFIG", "SET", "replica-read-only", "no") // on this replica
	want(t, examine(t, open(t, r.Replicas[0])), checkup.Critical, "role", "accepts writes")

	if err := r.Replicas[0].Pause(); err != nil {
		t.Fatal(err)
	}
	defer r.Replicas[0].Resume()
	lags := func(f checkup.Finding) bool {
		return f.Subject == "replica" && strings.Contains(f.What, "last reported")
	}
	for begin := time.Now(); ; {
		if found = examine(t, open(t, r.Master)); slices.ContainsFunc(found, lags) {
			break
		}
		if time.Since(begin) > generous {
			t.Fatalf("the replica lags, without a finding:\n%v", found)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// leastPermissions are those in docs/spec.md.
var leastPermissions = strings.Fields(`reset on nopass resetkeys resetchannels
	~lock:* ~{lock:*}:dibs:* ~dibs:fence:* &dibs:c:*
	+eval +evalsha +subscribe +ping +time +exists +get +set +del +pttl +pexpire
	+zadd +zcard +zcount +zscore +zrank +zrange +zrangebyscore +zrem +zpopmin
	+hget +hset +hdel +hexists +publish +pubsub|numsub +scan`)

func TestDoctorOfPermissions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		rights   []string
		severity checkup.Severity
		says     []string
	}{
		{"a command", []string{"-zpopmin"}, checkup.Critical, []string{"ACL SETUSER USER +zpopmin"}},
		{"all commands", []string{"-@all"}, checkup.Critical, []string{"+eval +evalsha +time +exists +get +set +del"}},
		{"highwaters", []string{"resetkeys", "~lock:*", "~{lock:*}:dibs:*"}, checkup.Critical, []string{"lacks ~dibs:fence:*,"}},
		{"queues", []string{"resetkeys", "~lock:*", "~dibs:fence:*"}, checkup.Critical, []string{"lacks ~{lock:*}:dibs:*,"}},
		{"locks", []string{"resetkeys", "~dibs:fence:*", "~{lock:*}:dibs:*"}, checkup.Critical, []string{"lacks ~lock:*,"}},
		{"channels", []string{"resetchannels"}, checkup.Warning, []string{"&dibs:c:*", "retry"}},
		{"channels, heard", []string{"resetchannels"}, checkup.Warning, []string{"&dibs:c:*", "poll"}},
		{"to subscribe", []string{"-subscribe"}, checkup.Warning, []string{"+subscribe", "poll"}},
		{"to publish", []string{"-publish"}, checkup.Warning, []string{"+publish"}},
		{"to count", []string{"-pubsub"}, checkup.Warning, []string{"+pubsub|numsub", "5 s"}},
		{"to list", []string{"-scan"}, checkup.Note, []string{"+scan", "List"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.MustCmd(t, append(append([]string{"ACL", "SETUSER", "default"}, leastPermissions...), c.rights...)...)
			found := examine(t, open(t, server))
			want(t, found, c.severity, "acl", c.says...)
			want(t, found, checkup.Unchecked, "info", "NOPERM", "aof_enabled", "+info", "while dibs doctor runs")
			want(t, found, checkup.Unchecked, "config get", "NOPERM", "+config|get")
		})
	}
}

func TestDoctorOfLeastPermissions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, leastPermissions...)...)
	found := examine(t, open(t, server))
	for _, f := range found {
		if f.Severity != checkup.Unchecked {
			t.Errorf("found:\n%v", f)
		}
	}
	server = redistest.Start(t, "--requirepass", "secret")
	want(t, examine(t, open(t, server)), checkup.Critical, "lock", "NOAUTH")
}

func TestDoctorOfAClusterNode(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t, durable...)
	found := examine(t, open(t, server, redisstore.HiddenCluster()))
	want(t, found, checkup.Warning, "spare")
	wantNone(t, found, "cluster", "slots", "hidden-cluster", "lock", "migration")

	want(t, examine(t, open(t, server)), checkup.Warning, "hidden-cluster", "MOVED")

	server.MustCmd(t, "CLUSTER", "DELSLOTS", "7")
	begin := time.Now()
	for server.MustCmd(t, "CLUSTER", "INFO").(string)[:len("cluster_state:ok")] == "cluster_state:ok" && time.Since(begin) < generous {
		time.Sleep(10 * time.Millisecond)
	}
	found = examine(t, open(t, server, redisstore.HiddenCluster()))
	want(t, found, checkup.Critical, "cluster", "fail", "--cluster check "+server.Addr())
	want(t, found, checkup.Critical, "slots", "1 of 16384")
	want(t, found, checkup.Critical, "lock", "CLUSTERDOWN")
}

func TestDoctorOfPermissionsOnACluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, leastPermissions...)...)
	found := examine(t, open(t, server, redisstore.HiddenCluster()))
	want(t, found, checkup.Warning, "acl", "+cluster|info", "failover")
	want(t, found, checkup.Unchecked, "cluster nodes", "NOPERM", "+cluster|nodes")
	wantNone(t, found, "lock")
}

func TestDoctorOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	first, err := c.MasterOf(0)
	if err != nil {
		t.Fatal(err)
	}
	last, err := c.MasterOf(16383)
	if err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, open(t, first)), checkup.Critical, "hidden-cluster", "MOVED")
	if _, err := c.OpenSlot(100, last); err != nil {
		t.Fatal(err)
	}
	// The smoke test uses names of the node itself: none is sent elsewhere.
	found := examine(t, open(t, first, redisstore.HiddenCluster()))
	want(t, found, checkup.Warning, "migration", "migrating slots: 1, [100->-")
	wantNone(t, found, "lock")
	wantNone(t, examine(t, open(t, last, redisstore.HiddenCluster())), "lock")
	// A prefix may put all names on another node.
	wantNone(t, examine(t, open(t, last, redisstore.HiddenCluster(), redisstore.Prefix("{1}:"))), "lock") // slot 9842
	wantNone(t, examine(t, open(t, first, redisstore.HiddenCluster(), redisstore.Prefix("{1}:"))), "lock")
}

func TestDoctorOfSlots(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	absent := withReply(t, server, "CLUSTER INFO", "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_pfail:5\r\n")
	want(t, examine(t, redisstore.New(absent, redisstore.HiddenCluster())), checkup.Critical, "slots", "5 slots do not reply")
	few := altered{Conn: dial(t, server), alter: func(cmd redisconn.Cmd, r *redisconn.Reply) {
		if cmd.Words()[0] == "EXISTS" {
			*r = redisconn.Reply{Err: redisconn.ServerError("MOVED 1 127.0.0.1:1")}
		}
	}}
	want(t, examine(t, redisstore.New(few, redisstore.HiddenCluster())), checkup.Unchecked, "a trial", "none of 256 names")
}

func TestDoctorOfKeysWithoutTTL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "SET", "lock:forever", "x")
	server.MustCmd(t, "SET", "lock:ends", "x", "EX", "100")
	server.MustCmd(t, "SET", "other", "x")
	want(t, examine(t, open(t, server)), checkup.Warning, "endless", "1 of the 2 keys in the sample never expire", `"lock:forever"`)
	found := examine(t, open(t, server, redisstore.Prefix("")))
	want(t, found, checkup.Note, "prefix")
	wantNone(t, found, "endless")
	wantNone(t, examine(t, open(t, server, redisstore.Prefix("lock:[e]"))), "endless")
}

// An altered Conn replaces some replies.
type altered struct {
	*redistest.Conn
	alter     func(cmd redisconn.Cmd, reply *redisconn.Reply)
	subscribe *redistest.Conn
	nodes     []redisconn.Node
}

func (a altered) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	a.Conn.Do(ctx, until, cmds, replies)
	if a.alter != nil {
		for i := range cmds {
			a.alter(cmds[i], &replies[i])
		}
	}
}

func (a altered) Subscribe(ctx context.Context, channel string, busy func() bool, on func(string)) error {
	if a.subscribe != nil {
		return a.subscribe.Subscribe(ctx, channel, busy, on)
	}
	return a.Conn.Subscribe(ctx, channel, busy, on)
}

func (a altered) Masters(_ context.Context, visit func(redisconn.Node) error) error {
	for _, node := range append(a.nodes, redisconn.Node{Addr: "first", Do: nodeDo(a)}) {
		if err := visit(node); err != nil {
			return err
		}
	}
	return nil
}

func dial(t *testing.T, server *redistest.Server) *redistest.Conn {
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	return conn
}

// withReply replaces the reply to a command.
func withReply(t *testing.T, server *redistest.Server, command string, value any) altered {
	return altered{Conn: dial(t, server), alter: func(cmd redisconn.Cmd, r *redisconn.Reply) {
		if strings.HasPrefix(strings.Join(cmd.Words(), " "), command) {
			*r = redisconn.Reply{Value: value}
		}
	}}
}

// withInfo adds fields to the reply to INFO.
func withInfo(t *testing.T, server *redistest.Server, pairs ...string) altered {
	return altered{Conn: dial(t, server), alter: func(cmd redisconn.Cmd, r *redisconn.Reply) {
		text, ok := r.Value.(string)
		if ok && cmd.Words()[0] == "INFO" {
			r.Value = text + strings.Join(pairs, "\r\n") + "\r\n" // the last pair counts
		}
	}}
}

func TestDoctorOfInfo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "CONFIG", "SET", "save", "3600 1") // Redis 6.2 ignores a second option --save
	for _, c := range []struct {
		conn     altered
		severity checkup.Severity
		subject  string
		says     []string
	}{
		{withInfo(t, server, "redis_mode:sentinel"), checkup.Critical, "role", []string{"Sentinel"}},
		{withInfo(t, server, "role:active-replica"), checkup.Critical, "role", []string{"active-replica"}},
		{withInfo(t, server, "redis_version:4.0.14"), checkup.Critical, "version", []string{"4.0.14"}},
		{withInfo(t, server, "redis_version:6.0.16"), checkup.Warning, "version", []string{"6.0.16"}},
		{withInfo(t, server, "redis_version:new"), checkup.Unchecked, "info", []string{"redis_version"}},
		{withInfo(t, server, "dragonfly_version:df-v1.25.1"), checkup.Warning, "server", []string{"neither Redis nor Valkey"}},
		{withInfo(t, server, "loading:1", "loading_eta_seconds:9"), checkup.Critical, "loading", []string{"9 s"}},
		{withInfo(t, server, "aof_last_write_status:err"), checkup.Critical, "disk", []string{"MISCONF"}},
		{withInfo(t, server, "aof_last_bgrewrite_status:err"), checkup.Warning, "disk", []string{"rewrite"}},
		{withInfo(t, server, "rdb_last_bgsave_status:err"), checkup.Critical, "disk", []string{"MISCONF"}},
		{withInfo(t, server, "connected_slaves:1", "slave0:ip=::1,port=2,state=wait_bgsave,offset=0,lag=0"), checkup.Warning, "replica", []string{"[::1]:2", "wait_bgsave"}},
		{withInfo(t, server, "aof_enabled:"), checkup.Unchecked, "info", []string{"aof_enabled"}},
		{withReply(t, server, "CONFIG GET save", []any{}), checkup.Unchecked, "config get", []string{"does not contain", "save"}},
		{withReply(t, server, "CONFIG GET save", map[any]any{"save": "7 8"}), checkup.Warning, "persistence", []string{"save 7 8"}},
		{withReply(t, server, "SCAN", "?"), checkup.Unchecked, "scan", []string{"keys"}},
		{withReply(t, server, "TIME", "?"), checkup.Unchecked, "time", []string{"clock"}},
	} {
		want(t, examine(t, redisstore.New(c.conn)), c.severity, c.subject, c.says...)
	}
	failing := withReply(t, server, "CONFIG GET stop-writes", []any{"stop-writes-on-bgsave-error", "no"})
	more := failing.alter
	failing.alter = func(cmd redisconn.Cmd, r *redisconn.Reply) {
		more(cmd, r)
		withInfo(t, server, "rdb_last_bgsave_status:err").alter(cmd, r)
	}
	want(t, examine(t, redisstore.New(failing)), checkup.Warning, "disk", "snapshot")
}

// withClock moves the server's clock.
func withClock(t *testing.T, server *redistest.Server, by func() time.Duration) altered {
	return altered{Conn: dial(t, server), alter: func(cmd redisconn.Cmd, r *redisconn.Reply) {
		list, ok := r.Value.([]any)
		if ok && cmd.Words()[0] == "TIME" {
			seconds, _ := strconv.ParseInt(list[0].(string), 10, 64)
			r.Value = []any{strconv.FormatInt(seconds+int64(by().Seconds()), 10), list[1]}
		}
	}}
}

func TestDoctorOfClocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for by, severity := range map[time.Duration]checkup.Severity{
		3 * time.Second: checkup.Note,
		time.Hour:       checkup.Warning,
		-time.Hour:      checkup.Warning,
	} {
		found := examine(t, redisstore.New(withClock(t, server, func() time.Duration { return by })))
		way := "ahead of"
		if by < 0 {
			way = "behind"
		}
		want(t, found, severity, "clock", way)
		wantNone(t, found, "clock-jump")
	}
	var commands atomic.Int32
	jumps := func() time.Duration {
		if commands.Add(1) > 1 {
			return 7 * time.Second
		}
		return 0
	}
	want(t, examine(t, redisstore.New(withClock(t, server, jumps))), checkup.Critical, "clock-jump", "set by ")
	wantNone(t, examine(t, open(t, server)), "clock", "clock-jump")
}

func TestDoctorOfMisdirectedMessages(t *testing.T) {
	t.Parallel()
	server, other := redistest.Start(t), redistest.Start(t)
	found := examine(t, redisstore.New(altered{Conn: dial(t, server), subscribe: dial(t, other)}))
	want(t, found, checkup.Warning, "numsub", "HiddenCluster()")
	want(t, found, checkup.Warning, "push", "no message")
}

func TestDoctorOfUnreachableServers(t *testing.T) {
	t.Parallel()
	gone := redistest.Dial(unusedAddress(t))
	if found, err := checkup.Examine(t.Context(), redisstore.New(gone)); !errors.Is(err, dibs.ErrUnavailable) || found != nil {
		t.Errorf("have %v, %v", found, err)
	}
	server := redistest.Start(t)
	some := altered{Conn: dial(t, server), nodes: []redisconn.Node{{Addr: "second", Do: nodeDo(gone)}}}
	found := examine(t, redisstore.New(some))
	want(t, found, checkup.Critical, "unreachable", "on second")
	want(t, found, checkup.Warning, "persistence", "on first")

	_, err := checkup.Examine(t.Context(), open(t, server, redisstore.WithReplicas(0, 0)))
	if !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("have %v", err)
	}
}

// unusedAddress is an address without a listener.
func unusedAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A hangingConn hangs after some requests.
type hangingConn struct {
	*redistest.Conn
	after  *atomic.Int32
	never  chan struct{}
	master bool
}

func (m hangingConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if m.after.Add(-1) < 0 {
		<-m.never
	}
	m.Conn.Do(ctx, until, cmds, replies)
}

func (m hangingConn) Subscribe(ctx context.Context, channel string, busy func() bool, on func(string)) error {
	if m.after.Load() < 0 {
		<-m.never
	}
	return m.Conn.Subscribe(ctx, channel, busy, on)
}

func (m hangingConn) Masters(_ context.Context, visit func(redisconn.Node) error) error {
	if m.master {
		<-m.never
	}
	return visit(redisconn.Node{Do: nodeDo(m)})
}

func TestDoctorEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	never := make(chan struct{})
	defer close(never)
	for n := int32(0); n < 40; n += 3 {
		m := hangingConn{Conn: dial(t, server), after: new(atomic.Int32), never: never, master: n == 0}
		m.after.Store(n)
		const limit = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		begin := time.Now()
		found, err := checkup.Examine(ctx, redisstore.New(m))
		cancel()
		took := time.Since(begin)
		if took > limit+2*time.Second {
			t.Errorf("deaf after %d requests: it took %v", n, took)
		}
		if err == nil && took > limit+100*time.Millisecond { // it was cut short, and returns the findings so far
			want(t, found, checkup.Unchecked, "unfinished", "deadline")
		}
		if n == 0 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deaf from the beginning: %v", err)
		}
		checkuptest.WantSorted(t, found)
	}
}

// fuzzConn returns a function's replies.
type fuzzConn struct {
	mu      sync.Mutex
	replies func(redisconn.Cmd) redisconn.Reply
}

func (b *fuzzConn) Do(_ context.Context, _ time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, cmd := range cmds {
		replies[i] = b.replies(cmd)
	}
}

func (b *fuzzConn) Subscribe(ctx context.Context, _ string, _ func() bool, on func(string)) error {
	on("")
	on("1 2 3 4")
	<-ctx.Done()
	return ctx.Err()
}

func (b *fuzzConn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	var replies [2]redisconn.Reply
	b.Do(ctx, time.Time{}, []redisconn.Cmd{call, wait.Cmd()}, replies[:])
	answered(replies[0])
	return replies[1]
}

func (b *fuzzConn) Traits() redisconn.Traits { return redisconn.Traits{} }

func (b *fuzzConn) Masters(_ context.Context, visit func(redisconn.Node) error) error {
	return visit(redisconn.Node{Addr: "here", Do: nodeDo(b)})
}

func FuzzDoctorReplies(f *testing.F) {
	f.Add("redis_version:7.0.15\r\nrole:master\r\nmaxmemory:1\r\nconnected_slaves:2\r\nslave0:ip=,port", "a b pubsub 1 2", "id a:1 myself,master - 0 0 1 connected 0-5 7 [8->-x]", "x", 1, true)
	f.Add("cluster_enabled:1\r\ncluster_slots_assigned:-1\r\nrole:slave", "-9223372036854775808", "x x myself x x x x x 5-1 -", "99999999999", 2, true)
	f.Add("slave1:state=online,lag=99\r\nconnected_slaves:9223372036854775807\r\nrole:master", "9223372036854775807", "", "-1", 3, false)
	f.Fuzz(func(t *testing.T, info, config, nodes, word string, shape int, sharded bool) {
		shapes := []any{nil, word, int64(shape), []any{word, word}, []any{int64(shape), []any{word}}, []any{[]any{int64(1), int64(shape), int64(shape), []any{}}}, map[any]any{word: word, int64(1): nil}, 1.5}
		other := shapes[uint(shape)%uint(len(shapes))]
		b := &fuzzConn{replies: func(sent redisconn.Cmd) redisconn.Reply {
			switch cmd := sent.Words(); {
			case cmd[0] == "INFO":
				return redisconn.Reply{Value: info}
			case cmd[0] == "CONFIG":
				return redisconn.Reply{Value: []any{cmd[2], config}}
			case cmd[0] == "CLUSTER":
				return redisconn.Reply{Value: info + "\n" + nodes}
			case shape%7 == 0:
				return redisconn.Reply{Err: redisconn.ServerError(word)}
			}
			return redisconn.Reply{Value: other}
		}}
		var options []redisstore.Option
		if sharded {
			options = append(options, redisstore.HiddenCluster())
		}
		ctx, cancel := context.WithTimeout(t.Context(), generous)
		defer cancel()
		found, err := checkup.Examine(ctx, redisstore.New(b, options...))
		if err != nil {
			t.Fatal(err)
		}
		checkuptest.WantSorted(t, found)
		_ = found.String()
	})
}

// A program can examine its server at the start, or on demand.
func Example() {
	locks := redisstore.New(redistest.Dial("localhost:6379")) // or goredisstore.New(rdb)
	found, err := checkup.Examine(context.Background(), locks)
	if err != nil {
		fmt.Println("no Redis:", err)
		return
	}
	fmt.Print(found)
	if found.Worst() == checkup.Critical {
		fmt.Println("not fit for locks")
	}
}
