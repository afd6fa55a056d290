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
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

// trace is what a caller's context is asked for.
type trace struct{}

// A hooked client notes what is sent through it, as rueidishook's and rueidisotel's do.
type hooked struct {
	rueidis.Client
	seen *seen
}

type seen struct {
	mu     sync.Mutex
	traces map[string]bool
}

func (s *seen) note(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traces[fmt.Sprint(ctx.Value(trace{}))] = true
}

func (h hooked) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	h.seen.note(ctx)
	return h.Client.Do(ctx, cmd)
}

func (h hooked) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	h.seen.note(ctx)
	return h.Client.DoMulti(ctx, cmds...)
}

func (h hooked) Nodes() map[string]rueidis.Client {
	nodes := h.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = hooked{node, h.seen}
	}
	return nodes
}

func (h hooked) Dedicate() (rueidis.DedicatedClient, func()) {
	line, release := h.Client.Dedicate()
	return hookedLine{line, h.seen}, release
}

type hookedLine struct {
	rueidis.DedicatedClient
	seen *seen
}

func (h hookedLine) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	h.seen.note(ctx)
	return h.DedicatedClient.Do(ctx, cmd)
}

// A client that wraps another one is given the values of the caller's context.
func TestContextValues(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := hooked{dial(t, start(t).Addr()), &seen{traces: make(map[string]bool)}}
			locks := open(t, client)
			want := []string{}
			for i := range 40 { // by and by on the direct way
				id := fmt.Sprint("alone ", i)
				want = append(want, id)
				l, err := locks.Mutex(job).Lock(context.WithValue(t.Context(), trace{}, id))
				if err != nil {
					t.Fatal(err)
				}
				drill.Unlock(t, l)
			}
			copies := dibs.New(rueidisstore.New(client, rueidisstore.WithReplicas(1, 10*time.Millisecond)))
			defer copies.Close()
			_, err := copies.Mutex(job).TryLock(context.WithValue(t.Context(), trace{}, "copies"))
			mustBe(t, err, dibs.ErrUnavailable) // there are none
			client.seen.mu.Lock()
			defer client.seen.mu.Unlock()
			for _, id := range append(want, "copies") {
				if !client.seen.traces[id] {
					t.Errorf("nothing came with %q, but with %q", id, slices.Sorted(maps.Keys(client.seen.traces)))
				}
			}
		})
	}
}

// A nil client is refused by each call, and not a crash.
func TestUnfitClients(t *testing.T) {
	t.Parallel()
	drill.WantInvalid(t, rueidisstore.New(nil), "nil")
	drill.WantInvalid(t, rueidisstore.New((*hooked)(nil)), "nil")
	drill.WantInvalid(t, rueidisstore.New(nil, rueidisstore.WithReplicas(1, time.Second)), "nil")
}
