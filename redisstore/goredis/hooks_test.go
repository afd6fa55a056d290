package goredis_test

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
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore/goredis"
	"github.com/redis/go-redis/v9"
)

// trace is what a caller's context is asked for.
type trace struct{}

// A recorder is a hook, as for tracing, which notes what it sees.
type recorder struct {
	mu      sync.Mutex
	scripts int             // calls of scripts
	traces  map[any]int     // by the context they came with
	texts   map[string]bool // all arguments
	dials   int
	refuses atomic.Pointer[error] // what it says in place of the server
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
		if err := r.note(ctx, cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := r.note(ctx, cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

func (r *recorder) note(ctx context.Context, cmds ...redis.Cmder) error {
	if err := r.refuses.Load(); err != nil {
		return *err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			r.scripts++
			r.traces[ctx.Value(trace{})]++
		}
		for _, arg := range cmd.Args() {
			r.texts[fmt.Sprint(arg)] = true
		}
	}
	return nil
}

func (r *recorder) seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scripts
}

// has reports whether something came with a caller's trace.
func (r *recorder) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traces[id] > 0
}

func newRecorder() *recorder {
	return &recorder{traces: make(map[any]int), texts: make(map[string]bool)}
}

// scripts returns how many calls of scripts servers have done.
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

// A hooked is a client with a hook, and the servers that do what it sends.
type hooked struct {
	rdb      redis.UniversalClient
	servers  []*redistest.Server
	replicas bool // each has some
}

// everywhere runs a test on each kind of client that has hooks of its own.
func everywhere(t *testing.T, test func(t *testing.T, h hooked, r *recorder)) {
	for name, open := range map[string]func(t *testing.T) hooked{
		"alone": func(t *testing.T) hooked {
			r := redistest.StartReplicated(t, 1)
			return hooked{dial(t, &redis.Options{Addr: r.Master.Addr()}), []*redistest.Server{r.Master}, true}
		},
		"sentinel": func(t *testing.T) hooked {
			s := redistest.StartSentinels(t, 1, 3)
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
			return hooked{rdb, s.Servers[:1], true}
		},
		"cluster": func(t *testing.T) hooked {
			c := redistest.StartCluster(t, 3, 0)
			return hooked{redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), c.Nodes(), false}
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

// wantAll checks that the hook has seen all scripts that the servers have run since
// they had run so many.
func (r *recorder) wantAll(t *testing.T, h hooked, what string, before, seen int) {
	t.Helper()
	var ran, have int
	drill.Eventually(t, what+": the hook has seen what the servers did", func() bool {
		have = r.seen() - seen // first: what comes in between is only on the servers
		ran = scripts(t, h.servers) - before
		return have == ran && ran > 0
	})
	t.Logf("%s: %d scripts", what, ran)
}

// Each command is seen by the user's hooks once, with the values of a caller's context.
func TestHooksSeeEveryCommand(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, h hooked, r *recorder) {
		locks := join(t, h.rdb)
		traced := func(id string) context.Context {
			return context.WithValue(drill.Within(t, drill.Generous), trace{}, id)
		}
		before := scripts(t, h.servers)

		for i := range 50 { // by and by on the direct way
			id := fmt.Sprint("alone ", i)
			l, err := locks.Mutex(job).Lock(traced(id))
			if err != nil {
				t.Fatal(err)
			}
			drill.Unlock(t, l)
			if !r.has(id) {
				t.Errorf("nothing came with %q", id)
			}
		}
		r.wantAll(t, h, "alone", before, 0)

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
		r.wantAll(t, h, "together", before, 0)

		l := drill.Lock(t, locks, job)
		entered := make(chan error, 1)
		waits := make(chan struct{})
		go func() {
			l, err := locks.Mutex(job).Lock(traced("waits"), dibs.Observe(dibs.Hooks{Waiting: func(dibs.Waiting) { close(waits) }}))
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
			if !r.has(id) {
				t.Errorf("nothing came with %q", id)
			}
		}
		r.wantAll(t, h, "waiting", before, 0)
		r.wantLegible(t)
		if r.dials == 0 && h.rdb.PoolStats() != nil && !isCluster(h.rdb) {
			t.Error("the hook has seen no connection being made")
		}
	})
}

func isCluster(rdb redis.UniversalClient) bool {
	_, ok := rdb.(*redis.ClusterClient)
	return ok
}

// wantLegible checks that a hook can read what is sent.
func (r *recorder) wantLegible(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.texts["EVALSHA"] || !r.texts[key] {
		t.Errorf("among the arguments are neither EVALSHA nor %s", key)
	}
	for text := range r.texts {
		if strings.HasPrefix(text, "0xc0") {
			t.Errorf("an argument is an address: %s", text)
		}
	}
}

// So is what waits for replicas; on a cluster by the hooks of its nodes.
func TestHooksSeeReplication(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, h hooked, r *recorder) {
		locks := dibs.New(goredis.New(h.rdb, goredis.WithReplicas(1, generous)), dibs.Timeout(2*generous))
		t.Cleanup(func() { locks.Close() })
		before, seen := scripts(t, h.servers), r.seen()
		for i := range 10 {
			id := fmt.Sprint("copied ", i)
			l, err := locks.Mutex(fmt.Sprint(i)).Lock(context.WithValue(t.Context(), trace{}, id))
			if err != nil {
				t.Fatal(err)
			}
			drill.Unlock(t, l)
			if !r.has(id) {
				t.Errorf("nothing came with %q", id)
			}
		}
		r.wantAll(t, h, "replicated", before, seen)
	}
	everywhere(t, func(t *testing.T, h hooked, r *recorder) {
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
		test(t, hooked{rdb: rdb, servers: c.Nodes()}, r)
	})
}

// A hook that is added to a client in use is seen soon.
func TestHookAddedLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := dial(t, &redis.Options{Addr: server.Addr()})
	locks := join(t, rdb)
	drill.Unlock(t, drill.Lock(t, locks, job))
	r := newRecorder()
	rdb.AddHook(r)
	drill.Eventually(t, "it sees a lock", func() bool {
		drill.Unlock(t, drill.Lock(t, locks, job))
		return r.seen() > 0
	})
}

// A breaker that refuses is told of as a server that does not answer, in each way of
// sending, and once it does not any more all goes on.
func TestHookRefuses(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, h hooked, r *recorder) {
		locks := join(t, h.rdb)
		for range 50 {
			drill.Unlock(t, drill.Lock(t, locks, job))
		}
		open := errors.New("the circuit is open")
		r.refuses.Store(&open)
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
		r.refuses.Store(nil)
		drill.Unlock(t, drill.Lock(t, locks, job))
	})
}

// What New is given that cannot hold locks is refused by each call, and not a crash.
func TestUnfitClients(t *testing.T) {
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
		says string
	}{
		"nil":          {nil, "nil"},
		"nil client":   {(*redis.Client)(nil), "nil"},
		"nil cluster":  {(*redis.ClusterClient)(nil), "nil"},
		"nil ring":     {(*redis.Ring)(nil), "nil"},
		"ring":         {ring, "*redis.Ring"},
		"own":          {struct{ *redis.Client }{client}, "*redis.Client"},
		"autopipeline": {pipeliner, "*redis.AutoPipeliner"},
	} {
		t.Run(name, func(t *testing.T) {
			drill.WantInvalid(t, goredis.New(c.rdb), c.says)
			drill.WantInvalid(t, goredis.New(c.rdb, goredis.WithReplicas(1, time.Second)), c.says)
		})
	}
}

// join returns a client of a store, which lives as long as the test.
func join(t *testing.T, rdb redis.UniversalClient, options ...goredis.Option) *dibs.Client {
	t.Helper()
	c := dibs.New(goredis.New(rdb, options...))
	t.Cleanup(func() { c.Close() })
	return c
}
