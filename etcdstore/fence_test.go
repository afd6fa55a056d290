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
	wantHeld(t, readers, warm)
	holder := newRequest(holdingClient, driver.Unlimited, driver.Unlimited)
	writer := holder
	writer.Token += "0"
	wantHeld(t, others, holder)
	wantBusy(t, others, writer)

	var last uint64
	leave := func() {
		hooked.beforeGet = nil
		release(t, others, holder.Name, holder.Token)
		last = wantHeld(t, others, writer).Fence
		release(t, others, writer.Name, writer.Token)
	}
	hooked.beforeGet = leave
	reply, err := readers.Acquire(t.Context(), reader)
	must(t, err)
	if hooked.beforeGet != nil {
		leave()
		reply = wantHeld(t, readers, reader)
	}
	if !reply.Held || reply.Fence <= last {
		t.Errorf("%+v, want a fence larger than %d", reply, last)
	}
}
