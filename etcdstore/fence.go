package etcdstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A fence counts from a base: the microseconds since 1970 when the prefix was first used. So the
// fences are larger than those of another store that a program used before. Each revision of etcd
// has 64 fences, because a single revision can grant to several readers.
const fencesPerRevision = 64

// fences computes fences. It is safe for concurrent use.
type fences struct {
	base    atomic.Uint64 // zero: not yet read
	doubted atomic.Bool   // somebody may have deleted the base
}

// doubt makes the next load read the base again. An entry that is missing may have been deleted by
// hand, and the base with it.
func (f *fences) doubt() { f.doubted.Store(true) }

// load reads or creates the base. It writes nothing if the base exists: etcd without space refuses
// even a transaction that could write.
func (f *fences) load(ctx context.Context, kv clientv3.KV, key string) error {
	if f.base.Load() != 0 && !f.doubted.Load() {
		return nil
	}
	f.doubted.Store(false)
	reply, err := twice(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return kv.Get(ctx, key)
	})
	if err == nil {
		err = f.keep(ctx, kv, key, reply.Kvs)
	}
	if err != nil {
		f.doubt()
	}
	return err
}

// keep accepts a base that was read, unless its own is larger. If the base was deleted, keep
// restores it.
func (f *fences) keep(ctx context.Context, kv clientv3.KV, key string, kvs []*mvccpb.KeyValue) error {
	own := f.base.Load()
	if len(kvs) == 0 {
		created := cmp.Or(int64(own), time.Now().UnixMicro())
		var err error
		if kvs, err = createBase(ctx, kv, key, created); err != nil {
			return err
		}
	}
	if len(kvs) == 0 {
		return fmt.Errorf("the key %s was deleted", key)
	}
	base, err := parseBase(kvs[0])
	if err != nil {
		return err
	}
	for own < base && !f.base.CompareAndSwap(own, base) {
		own = f.base.Load()
	}
	return nil
}

func parseBase(kv *mvccpb.KeyValue) (uint64, error) {
	base, err := strconv.ParseUint(string(kv.Value), 10, 52)
	if err != nil || base == 0 {
		return 0, fmt.Errorf("the key %s contains %q, want the base of the fences: a number", kv.Key, kv.Value)
	}
	return base, nil
}

// createBase creates the base, unless another process was first.
func createBase(ctx context.Context, kv clientv3.KV, key string, base int64) ([]*mvccpb.KeyValue, error) {
	text := strconv.FormatInt(base, 10)
	reply, err := kv.Txn(ctx).If(absent(key)).
		Then(clientv3.OpPut(key, text), clientv3.OpGet(key)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return nil, err
	}
	return reply.Responses[len(reply.Responses)-1].GetResponseRange().GetKvs(), nil
}

// own returns the fence of an entry that became a holder by its own write, at a revision.
func (f *fences) own(revision int64) uint64 {
	return f.base.Load() + uint64(revision)*fencesPerRevision
}

// seen returns the fence of a holder by somebody else's write, as a client saw it at a revision.
// index is the holder's index in the queue.
func (f *fences) seen(revision int64, index int) uint64 {
	return f.own(revision) + uint64(min(index+1, fencesPerRevision-1))
}

// upTo returns a number that no fence granted until a revision exceeds.
func (f *fences) upTo(revision int64) uint64 { return f.seen(revision, fencesPerRevision) }

// of returns an entry's fence, or zero if the entry does not say it.
func (f *fences) of(e entry) uint64 {
	if e.Fence > 0 {
		return e.Fence
	}
	if revision := e.fenceRevision(); revision > 0 {
		return f.own(revision)
	}
	return 0
}
