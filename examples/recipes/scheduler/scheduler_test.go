package scheduler

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// everySecond is relative to a scheduler's start. It is for tests: see the page.
const everySecond = "@every 1s"

// ttl is how long the tests wait for the next leader after a crash.
const ttl = 2 * time.Second

// limit is how long the tests wait for an event.
const limit = 20 * time.Second

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"replica": func(out io.Writer, args []string) error {
		rdb := redis.NewClient(&redis.Options{Addr: args[0]})
		locks := dibs.New(goredisstore.New(rdb), dibs.TTL(ttl))
		return Schedule(context.Background(), locks, func() (*asynq.Scheduler, error) {
			return NewScheduler(asynq.RedisClientOpt{Addr: args[0]}, everySecond, func(_ *asynq.TaskInfo, err error) {
				fmt.Fprintln(out, "enqueued", err)
			})
		})
	}})
}

// A record lists which replica enqueued each task.
type record struct {
	t      *testing.T
	server *redistest.Server
	outage bool // attempts to enqueue may fail

	mu      sync.Mutex
	by      []string
	changed chan struct{} // contains a value after a change
}

func newRecord(t *testing.T) *record {
	return &record{t: t, server: redistest.Start(t), changed: make(chan struct{}, 1)}
}

func (r *record) add(replica string) {
	r.mu.Lock()
	r.by = append(r.by, replica)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *record) replicas() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.by)
}

// waitFor waits until the replica has enqueued n more tasks.
func (r *record) waitFor(replica string, n int) {
	r.t.Helper()
	seen := len(r.replicas())
	over := time.After(limit)
	for {
		n := n
		for _, by := range r.replicas()[seen:] {
			if by == replica {
				n--
			}
		}
		if n <= 0 {
			return
		}
		select {
		case <-r.changed:
		case <-over:
			r.t.Fatalf("%s has enqueued nothing: %v", replica, r.replicas())
		}
	}
}

// tasks returns the number of tasks in the queue.
func (r *record) tasks() int {
	r.t.Helper()
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: r.server.Addr()})
	defer inspector.Close()
	queue, err := inspector.GetQueueInfo("default")
	if err != nil {
		r.t.Fatal(err)
	}
	return queue.Pending
}

// A replica is a separate process to Redis.
type replica struct {
	locks *dibs.Client
	stop  func()
	waits chan struct{} // closed when the replica waits for its turn
	lost  chan struct{} // closed when the replica loses a term
}

func (r *record) start(name string) *replica {
	r.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: r.server.Addr()})
	started := &replica{waits: make(chan struct{}), lost: make(chan struct{})}
	waits, lost := sync.OnceFunc(func() { close(started.waits) }), sync.OnceFunc(func() { close(started.lost) })
	started.locks = dibs.New(goredisstore.New(rdb), dibs.TTL(ttl), dibs.Observe(dibs.Hooks{
		Queued: func(context.Context, dibs.Queued) { waits() },
		Lost:   func(context.Context, dibs.Lost) { lost() },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Schedule(ctx, started.locks, func() (*asynq.Scheduler, error) {
			return NewScheduler(asynq.RedisClientOpt{Addr: r.server.Addr()}, everySecond, func(_ *asynq.TaskInfo, err error) {
				switch {
				case err == nil:
					r.add(name)
				case !r.outage:
					r.t.Errorf("%s: %v", name, err)
				}
			})
		})
	}()
	started.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("%s: Schedule returned %v, want an end without an error", name, err)
		}
		started.locks.Close()
		rdb.Close()
	})
	r.t.Cleanup(started.stop)
	return started
}

// await waits until an event closes its channel.
func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(limit):
		t.Fatal("the event did not happen")
	}
}

// Of two replicas one enqueues until it stops. Then the other one does. The first one may follow in a
// later term, when it was started again.
func TestOneReplicaEnqueues(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	a := r.start("a")
	r.waitFor("a", 1)
	b := r.start("b")
	await(t, b.waits)
	r.waitFor("a", 1)

	a.stop()
	r.waitFor("b", 2)
	a = r.start("a")
	await(t, a.waits)
	b.stop()
	r.waitFor("a", 1)
	a.stop()

	by := r.replicas()
	if terms := slices.Compact(slices.Clone(by)); !slices.Equal(terms, []string{"a", "b", "a"}) {
		t.Errorf("enqueued by %v, want a, then b, then a", by)
	}
	if n := r.tasks(); n != len(by) {
		t.Errorf("the queue has %d tasks, want %d", n, len(by))
	}
}

// The term does not end while a task is being enqueued.
func TestTermCoversTheEnqueue(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	ended, enqueued := make(chan struct{}), false
	err := func() error {
		defer close(ended)
		return Schedule(ctx, locks, func() (*asynq.Scheduler, error) {
			return NewScheduler(asynq.RedisClientOpt{Addr: addr}, everySecond, func(*asynq.TaskInfo, error) {
				stop()
				select {
				case <-ended:
					t.Error("the term has ended")
				case <-time.After(200 * time.Millisecond):
				}
				enqueued = true
			})
		})
	}()
	if err != nil || !enqueued {
		t.Errorf("got %v; enqueued: %v", err, enqueued)
	}
}

// After the leader crashes, another replica enqueues after the TTL.
func TestLeaderCrashes(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	leader := childtest.Start(t, "replica", r.server.Addr())
	wantEnqueued(t, leader)
	standby := r.start("standby")
	await(t, standby.waits)
	wantEnqueued(t, leader)
	if by := r.replicas(); len(by) != 0 {
		t.Errorf("%d tasks enqueued by the standby", len(by))
	}
	leader.Kill()
	r.waitFor("standby", 1)
}

// A replica that lost its term in an outage should lead again when Redis is back.
func TestOutage(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	r.outage = true
	a := r.start("a")
	r.waitFor("a", 1)
	r.server.Kill()
	await(t, a.lost)
	if err := r.server.Restart(); err != nil {
		t.Fatal(err)
	}
	r.waitFor("a", 1)
}

func wantEnqueued(t *testing.T, leader *childtest.Child) {
	t.Helper()
	if line := leader.Line(); line != "enqueued <nil>" {
		t.Fatalf("the leader printed %q", line)
	}
}
