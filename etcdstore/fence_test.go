package etcdstore_test

import (
	"context"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// hookedKV calls a function before a read.
type hookedKV struct {
	clientv3.KV
	beforeGet func()
}

func (h *hookedKV) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if h.beforeGet != nil {
		h.beforeGet()
	}
	return h.KV.Get(ctx, key, options...)
}

// A reader joins behind a waiting writer, and both the holder and the writer leave before it reads
// the queue. Its fence should be larger than that of the writer.
func TestFenceAfterJoin(t *testing.T) {
	t.Parallel()
	prefix, cli := newPrefix(), newClient(t, sharedServer(t))
	hooked := &hookedKV{KV: cli.KV}
	cli.KV = hooked
	readers, others := etcdstore.New(cli, etcdstore.Prefix(prefix)), etcdstore.New(newClient(t, sharedServer(t)), etcdstore.Prefix(prefix))
	reader := newRequest(waitingClient, 1, driver.Unlimited)
	warm := reader
	warm.Name, warm.Token = "warm", waitingClient+":0"
	acquireWith(t, readers, warm, true)
	holder := newRequest(holdingClient, driver.Unlimited, driver.Unlimited)
	writer := holder
	writer.Token += "0"
	acquireWith(t, others, holder, true)
	acquireWith(t, others, writer, false)

	var last uint64
	leave := func() {
		hooked.beforeGet = nil
		releaseWith(t, others, holder)
		last = acquireWith(t, others, writer, true).Fence
		releaseWith(t, others, writer)
	}
	hooked.beforeGet = leave
	reply, err := readers.Acquire(t.Context(), reader)
	must(t, err)
	if hooked.beforeGet != nil {
		leave()
		reply = acquireWith(t, readers, reader, true)
	}
	if !reply.Held || reply.Fence <= last {
		t.Errorf("%+v, want a fence larger than %d", reply, last)
	}
}

func acquireWith(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest, held bool) driver.AcquireReply {
	t.Helper()
	reply, err := s.Acquire(t.Context(), r)
	if err != nil || reply.Held != held {
		t.Fatalf("%+v, %v; want held %v", reply, err, held)
	}
	return reply
}

func releaseWith(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest) {
	t.Helper()
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: r.Name, Token: r.Token}); err != nil || !released {
		t.Errorf("released: %v, %v", released, err)
	}
}
