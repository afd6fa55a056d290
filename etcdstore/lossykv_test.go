package etcdstore_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errNoReply is the error of a request whose reply is lost.
var errNoReply = status.Error(codes.Unavailable, "the reply is lost")

// A lossyKV loses the replies to a store's transactions. Reads outside of a transaction are not
// concerned.
type lossyKV struct {
	clientv3.KV

	mu   sync.Mutex
	lose func(*lossyTxn) bool // whether to lose the next reply
	skip int                  // how many replies not to lose first
	late bool                 // the request is executed only when the test says so
	run  func() error         // executes the late request
	some *sync.WaitGroup      // the late requests of loseSome
}

// newLossyStore returns a store that loses replies on demand.
func newLossyStore(t *testing.T, options ...etcdstore.Option) (*etcdstore.Store, *lossyKV) {
	t.Helper()
	cli := newClient(t, sharedServer(t))
	kv := &lossyKV{KV: cli.KV}
	cli.KV = kv
	return etcdstore.New(cli, options...), kv
}

// loseNext loses the reply to the next transaction that writes a key under a prefix, or deletes it.
// A late request is executed by runLate.
func (kv *lossyKV) loseNext(prefix string, late bool) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.late = late
	kv.lose = func(txn *lossyTxn) bool { return txn.writes(prefix) }
}

// loseSome loses a share of the replies to transactions that write. Half of these transactions are
// executed later, within 500 ms.
func (kv *lossyKV) loseSome(share float64, late *sync.WaitGroup) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.lose = func(txn *lossyTxn) bool { return txn.writes("") && rand.Float64() < share }
	kv.some = late
}

// runLate executes the late request.
func (kv *lossyKV) runLate(t *testing.T) {
	t.Helper()
	kv.mu.Lock()
	run := kv.run
	kv.run = nil
	kv.mu.Unlock()
	if run == nil {
		t.Fatal("no request is late")
	}
	if err := run(); err != nil {
		t.Logf("the late request: %v", err)
	}
}

func (kv *lossyKV) Txn(ctx context.Context) clientv3.Txn { return &lossyTxn{kv: kv, ctx: ctx} }

// A lossyTxn is a transaction of a lossyKV.
type lossyTxn struct {
	kv         *lossyKV
	ctx        context.Context
	conditions []clientv3.Cmp
	then, or   []clientv3.Op
}

func (txn *lossyTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	txn.conditions = conditions
	return txn
}

func (txn *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn { txn.then = ops; return txn }
func (txn *lossyTxn) Else(ops ...clientv3.Op) clientv3.Txn { txn.or = ops; return txn }

func (txn *lossyTxn) writes(prefix string) bool {
	for _, op := range append(txn.then, txn.or...) {
		key := string(op.KeyBytes())
		if (op.IsPut() || op.IsDelete()) && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func (txn *lossyTxn) execute(ctx context.Context) (*clientv3.TxnResponse, error) {
	return txn.kv.KV.Txn(ctx).If(txn.conditions...).Then(txn.then...).Else(txn.or...).Commit()
}

func (txn *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	lost, late := txn.kv.loses(txn)
	if !late {
		reply, err := txn.execute(txn.ctx)
		if !lost || err != nil {
			return reply, err
		}
	}
	return nil, errNoReply
}

// loses reports whether the reply to a transaction is lost. A late transaction is executed later, and
// its reply is lost.
func (kv *lossyKV) loses(txn *lossyTxn) (lost, late bool) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.lose == nil || !kv.lose(txn) {
		return false, false
	}
	if kv.skip > 0 {
		kv.skip--
		return false, false
	}
	run := func() error {
		_, err := txn.execute(context.WithoutCancel(txn.ctx))
		return err
	}
	if kv.some == nil {
		kv.lose = nil
		if kv.late {
			kv.run = run
		}
		return true, kv.late
	}
	if late = rand.IntN(2) == 0; late {
		kv.some.Go(func() {
			time.Sleep(rand.N(500 * time.Millisecond))
			_ = run()
		})
	}
	return true, late
}
