package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// traceKey is the key for a trace ID in a caller's context.
type traceKey struct{}

// recorder is a hook, as for tracing, that records what it sees.
type recorder struct {
	mu      sync.Mutex
	scripts int             // script calls
	traces  map[any]int     // number of calls by trace ID
	texts   map[string]bool // all arguments
	dials   int
	rejects atomic.Pointer[error] // returned instead of sending, if not nil
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		r.mu.Lock()
		r.dials++
		r.mu.Unlock()
		return next(ctx, network, addr)
	}
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := r.record(ctx, cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := r.record(ctx, cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

func (r *recorder) record(ctx context.Context, cmds ...redis.Cmder) error {
	if err := r.rejects.Load(); err != nil {
		return *err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			r.scripts++
			r.traces[ctx.Value(traceKey{})]++
		}
		for _, arg := range cmd.Args() {
			r.texts[fmt.Sprint(arg)] = true
		}
	}
	return nil
}

func (r *recorder) scriptCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scripts
}

// sawTrace reports whether a call had a caller's trace ID.
func (r *recorder) sawTrace(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traces[id] > 0
}

func newRecorder() *recorder {
	return &recorder{traces: make(map[any]int), texts: make(map[string]bool)}
}

// scripts returns how many script calls the servers executed.
func scripts(t *testing.T, servers []*redistest.Server) (calls int) {
	t.Helper()
	for _, server := range servers {
		for line := range strings.Lines(fmt.Sprint(server.MustCmd(t, "INFO", "commandstats"))) {
			if stat, ok := strings.CutPrefix(line, "cmdstat_eval"); ok {
				_, n, _ := strings.Cut(stat, "calls=")
				n, _, _ = strings.Cut(n, ",")
				count, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				calls += count
			}
		}
	}
	return calls
}

// hookedClient is a client with a hook, and the servers that execute its commands.
type hookedClient struct {
	rdb      redis.UniversalClient
	servers  []*redistest.Server
	replicas bool // each server has replicas
}

// onEachSetup runs a test on each client kind with its own hooks.
func onEachSetup(t *testing.T, test func(t *testing.T, h hookedClient, r *recorder)) {
	for name, open := range map[string]func(t *testing.T) hookedClient{
		"one server": func(t *testing.T) hookedClient {
			r := redistest.StartReplicated(t, 1)
			return hookedClient{dial(t, &redis.Options{Addr: r.Master.Addr()}), []*redistest.Server{r.Master}, true}
		},
		"sentinel": func(t *testing.T) hookedClient {
			s := redistest.StartSentinels(t, 1, 3)
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
			return hookedClient{rdb, s.Servers[:1], true}
		},
		"cluster": func(t *testing.T) hookedClient {
			c := redistest.StartCluster(t, 3, 0)
			return hookedClient{redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), c.Nodes(), false}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, r := open(t), newRecorder()
			t.Cleanup(func() { h.rdb.Close() })
			h.rdb.AddHook(r)
			test(t, h, r)
		})
	}
}

// wantAllSeen checks that the hook saw all scripts executed by the servers since their counter was
// before and the hook's was seen.
func (r *recorder) wantAllSeen(t *testing.T, h hookedClient, what string, before, seen int) {
	t.Helper()
	var ran, have int
	drill.Eventually(t, what+": the hook has seen all scripts of the servers", func() bool {
		have = r.scriptCount() - seen // read first: later calls must not count
		ran = scripts(t, h.servers) - before
		return have == ran && ran > 0
	})
	t.Logf("%s: %d scripts", what, ran)
}

// The user's hooks should see each command once, with the values in a caller's context.
func TestHooksSeeEveryCommand(t *testing.T) {
	t.Parallel()
	onEachSetup(t, func(t *testing.T, h hookedClient, r *recorder) {
		locks := openClient(t, h.rdb)
		traced := func(id string) context.Context {
			return context.WithValue(drill.Within(t, drill.Generous), traceKey{}, id)
		}
		before := scripts(t, h.servers)

		for i := range 50 { // the later ones on the direct path
			id := fmt.Sprint("alone ", i)
			l, err := locks.Mutex(job).Lock(traced(id))
			if err != nil {
				t.Fatal(err)
			}
			drill.Unlock(t, l)
			if !r.sawTrace(id) {
				t.Errorf("no call with the trace %q", id)
			}
		}
		r.wantAllSeen(t, h, "alone", before, 0)

		var callers sync.WaitGroup
		for i := range 64 { // in pipelines
			callers.Go(func() {
				for j := range 10 {
					l, err := locks.Mutex(fmt.Sprint(i)).Lock(traced("together"), dibs.TTL(time.Minute))
					if err == nil && j < 9 {
						err = l.Unlock()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		r.wantAllSeen(t, h, "together", before, 0)

		l := drill.Lock(t, locks, job)
		entered := make(chan error, 1)
		waits := make(chan struct{})
		go func() {
			l, err := locks.Mutex(job).Lock(traced("waits"), dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waits) }}))
			if err == nil {
				err = l.Extend(traced("extends"), time.Minute)
			}
			if err == nil {
				err = l.Unlock()
			}
			entered <- err
		}()
		<-waits
		drill.Unlock(t, l)
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"together", "waits", "extends"} {
			if !r.sawTrace(id) {
				t.Errorf("no call with the trace %q", id)
			}
		}
		r.wantAllSeen(t, h, "waiting", before, 0)
		r.wantReadable(t)
		if r.dials == 0 && h.rdb.PoolStats() != nil && !isCluster(h.rdb) {
			t.Error("the hook has seen no dial")
		}
	})
}

func isCluster(rdb redis.UniversalClient) bool {
	_, ok := rdb.(*redis.ClusterClient)
	return ok
}

// wantReadable checks that a hook can read the commands' arguments.
func (r *recorder) wantReadable(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.texts["EVALSHA"] || !r.texts[key] {
		t.Errorf("the arguments do not contain both EVALSHA and %s", key)
	}
	for text := range r.texts {
		if strings.HasPrefix(text, "0xc0") {
			t.Errorf("an argument is an address: %s", text)
		}
	}
}

// The hooks should also see WithReplicas' commands, on a cluster the nodes' hooks.
func TestHooksSeeReplication(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, h hookedClient, r *recorder) {
		locks := dibs.New(goredisstore.New(h.rdb, redisstore.WithReplicas(1, generous)), dibs.Timeout(2*generous))
		t.Cleanup(func() { locks.Close() })
		before, seen := scripts(t, h.servers), r.scriptCount()
		for i := range 10 {
			id := fmt.Sprint("copied ", i)
			l, err := locks.Mutex(fmt.Sprint(i)).Lock(context.WithValue(t.Context(), traceKey{}, id))
			if err != nil {
				t.Fatal(err)
			}
			drill.Unlock(t, l)
			if !r.sawTrace(id) {
				t.Errorf("no call with the trace %q", id)
			}
		}
		r.wantAllSeen(t, h, "replicated", before, seen)
	}
	onEachSetup(t, func(t *testing.T, h hookedClient, r *recorder) {
		if h.replicas {
			test(t, h, r)
		}
	})
	t.Run("nodes", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 1)
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		t.Cleanup(func() { rdb.Close() })
		r := newRecorder()
		rdb.OnNewNode(func(node *redis.Client) { node.AddHook(r) })
		test(t, hookedClient{rdb: rdb, servers: c.Nodes()}, r)
	})
}

// A hook added to a client in use should take effect soon.
func TestHookAddedLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := dial(t, &redis.Options{Addr: server.Addr()})
	locks := openClient(t, rdb)
	drill.Unlock(t, drill.Lock(t, locks, job))
	r := newRecorder()
	rdb.AddHook(r)
	drill.Eventually(t, "the hook sees a lock", func() bool {
		drill.Unlock(t, drill.Lock(t, locks, job))
		return r.scriptCount() > 0
	})
}

// If a hook, such as a circuit breaker, rejects commands, calls return its error as
// ErrUnavailable on each path, and succeed again when it no longer does.
func TestHookRejects(t *testing.T) {
	t.Parallel()
	onEachSetup(t, func(t *testing.T, h hookedClient, r *recorder) {
		locks := openClient(t, h.rdb)
		for range 50 {
			drill.Unlock(t, drill.Lock(t, locks, job))
		}
		open := errors.New("the circuit is open")
		r.rejects.Store(&open)
		var callers sync.WaitGroup
		for i := range 32 {
			callers.Go(func() {
				_, err := locks.Mutex(fmt.Sprint(i)).TryLock(drill.Within(t, 300*time.Millisecond))
				if !errors.Is(err, dibs.ErrUnavailable) || !errors.Is(err, open) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("have %v, want unavailable: %v", err, open)
				}
			})
		}
		callers.Wait()
		r.rejects.Store(nil)
		drill.Unlock(t, drill.Lock(t, locks, job))
	})
}

// With a client that New does not support, each call should return an error and not panic.
func TestUnsupportedClients(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	t.Cleanup(func() { ring.Close() })
	client := dial(t, &redis.Options{Addr: server.Addr()})
	pipeliner, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipeliner.Close() })
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		text string
	}{
		"nil":          {nil, "goredisstore.New: the go-redis client is nil"},
		"nil client":   {(*redis.Client)(nil), "goredisstore.New: the go-redis client is nil"},
		"nil cluster":  {(*redis.ClusterClient)(nil), "goredisstore.New: the go-redis client is nil"},
		"nil ring":     {(*redis.Ring)(nil), "goredisstore.New: the go-redis client is nil"},
		"ring":         {ring, "*redis.Ring"},
		"own":          {struct{ *redis.Client }{client}, "*redis.Client"},
		"autopipeline": {pipeliner, "*redis.AutoPipeliner"},
	} {
		t.Run(name, func(t *testing.T) {
			invalidstore.Check(t, goredisstore.New(c.rdb), c.text)
			invalidstore.Check(t, goredisstore.New(c.rdb, redisstore.WithReplicas(1, time.Second)), c.text)
		})
	}
}

// openClient returns a client that is closed when the test ends.
func openClient(t *testing.T, rdb redis.UniversalClient, options ...redisstore.Option) *dibs.Client {
	t.Helper()
	c := dibs.New(goredisstore.New(rdb, options...))
	t.Cleanup(func() { c.Close() })
	return c
}
