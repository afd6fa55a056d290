package etcdstore

import (
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
	base atomic.Uint64 // zero: not yet read
}

// load reads or creates the base. It writes nothing if the base exists: etcd without space refuses
// even a transaction that could write.
func (f *fences) load(ctx context.Context, kv clientv3.KV, key string) error {
	if f.base.Load() != 0 {
		return nil
	}
	reply, err := kv.Get(ctx, key)
	if err != nil {
		return err
	}
	kvs := reply.Kvs
	if len(kvs) == 0 {
		if kvs, err = createBase(ctx, kv, key); err != nil {
			return err
		}
	}
	if len(kvs) == 0 {
		return fmt.Errorf("the key %s was deleted", key)
	}
	base, err := strconv.ParseUint(string(kvs[0].Value), 10, 52)
	if err != nil || base == 0 {
		return fmt.Errorf("the key %s contains %q, want the base of the fences: a number", key, kvs[0].Value)
	}
	f.base.Store(base)
	return nil
}

// createBase creates the base, unless another process was first.
func createBase(ctx context.Context, kv clientv3.KV, key string) ([]*mvccpb.KeyValue, error) {
	now := strconv.FormatInt(time.Now().UnixMicro(), 10)
	reply, err := kv.Txn(ctx).If(absent(key)).
		Then(clientv3.OpPut(key, now), clientv3.OpGet(key)).Else(clientv3.OpGet(key)).Commit()
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
