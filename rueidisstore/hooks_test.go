package rueidisstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

// traceKey is the key for a trace ID in a caller's context.
type traceKey struct{}

// hookedClient records the traces of its commands. It wraps a client as rueidishook and rueidisotel
// do.
type hookedClient struct {
	rueidis.Client
	recorder *recorder
}

type recorder struct {
	mu     sync.Mutex
	traces map[string]bool
}

func (r *recorder) record(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traces[fmt.Sprint(ctx.Value(traceKey{}))] = true
}

func (h hookedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	h.recorder.record(ctx)
	return h.Client.Do(ctx, cmd)
}

func (h hookedClient) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	h.recorder.record(ctx)
	return h.Client.DoMulti(ctx, cmds...)
}

func (h hookedClient) Nodes() map[string]rueidis.Client {
	nodes := h.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = hookedClient{node, h.recorder}
	}
	return nodes
}

func (h hookedClient) Dedicate() (rueidis.DedicatedClient, func()) {
	dedicated, release := h.Client.Dedicate()
	return hookedConn{dedicated, h.recorder}, release
}

type hookedConn struct {
	rueidis.DedicatedClient
	recorder *recorder
}

func (h hookedConn) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	h.recorder.record(ctx)
	return h.DedicatedClient.Do(ctx, cmd)
}

// A client that wraps another client gets the values in the caller's context.
func TestContextValues(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := hookedClient{dial(t, start(t).Addr()), &recorder{traces: make(map[string]bool)}}
			locks := open(t, client)
			want := []string{}
			for i := range 40 { // the later ones on the direct path
				id := fmt.Sprint("alone ", i)
				want = append(want, id)
				l, err := locks.Mutex(job).Lock(context.WithValue(t.Context(), traceKey{}, id))
				if err != nil {
					t.Fatal(err)
				}
				drill.Unlock(t, l)
			}
			replicated := dibs.New(rueidisstore.New(client, redisstore.WithReplicas(1, 10*time.Millisecond)))
			defer replicated.Close()
			_, err := replicated.Mutex(job).TryLock(context.WithValue(t.Context(), traceKey{}, "replicated"))
			wantErr(t, err, dibs.ErrUnavailable) // there are no replicas
			client.recorder.mu.Lock()
			defer client.recorder.mu.Unlock()
			for _, id := range append(want, "replicated") {
				if !client.recorder.traces[id] {
					t.Errorf("no command with the trace %q, only with %q", id, slices.Sorted(maps.Keys(client.recorder.traces)))
				}
			}
		})
	}
}
