package interop

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A locker is a library or a script for locking a key.
type locker interface {
	// lock waits for the key. try acquires it only if it is free.
	lock(ctx context.Context, key string, ttl time.Duration) (lock, error)
	try(ctx context.Context, key string, ttl time.Duration) (lock, error)
}

// A lock is a held key.
type lock interface {
	value() string // the key's value
	// extend and unlock report whether the lock was still held.
	extend(ctx context.Context, ttl time.Duration) (bool, error)
	unlock(ctx context.Context) (bool, error)
}

// errHeld is the error from try if the key is held.
var errHeld = errors.New("held")

// A fixture is a server with a locker for each library.
type fixture struct {
	*redistest.Server
	rdb     *redis.Client
	dibs    *dibs.Client
	lockers map[string]locker
}

const pollEvery = 5 * time.Millisecond

func open(t *testing.T) fixture {
	t.Helper()
	server := redistest.Start(t)
	rdb := dial(t, server)
	locks := newDibs(t, rdb, "")
	lockers := goPeers(rdb)
	lockers["dibs"] = dibsLocker{locks}
	return fixture{server, rdb, locks, lockers}
}

// goPeers returns the other libraries for Go, and the hand-written lock.
func goPeers(rdb *redis.Client) map[string]locker {
	return map[string]locker{
		"redsync":   redsyncLocker{redsync.New(pool.NewPool(rdb))},
		"redislock": redislockLocker{redislock.New(rdb)},
		"bare":      scriptLocker{rdb},
	}
}

func dial(t *testing.T, server *redistest.Server) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 50, ReadTimeout: patience})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// newDibs returns a dibs client with a prefix for its lock keys.
func newDibs(t *testing.T, rdb *redis.Client, prefix string, store ...redisstore.Option) *dibs.Client {
	locks := dibs.New(goredisstore.New(rdb, append(store, redisstore.Prefix(prefix))...), dibs.Timeout(patience))
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return locks
}

// peers returns all lockers except dibs.
func (s fixture) peers() map[string]locker {
	peers := make(map[string]locker)
	for name, k := range s.lockers {
		if name != "dibs" {
			peers[name] = k
		}
	}
	return peers
}

type dibsLocker struct{ c *dibs.Client }

type dibsLock struct{ *dibs.Lease }

func (k dibsLocker) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := k.c.Mutex(key).Lock(ctx, dibs.TTL(ttl))
	return dibsLock{l}, err
}

func (k dibsLocker) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := k.c.Mutex(key).TryLock(ctx, dibs.TTL(ttl))
	if errors.Is(err, dibs.ErrBusy) {
		err = errors.Join(errHeld, err)
	}
	return dibsLock{l}, err
}

func (l dibsLock) value() string { return valueOf(l.Lease) }

// valueOf returns the value in a lease's key.
func valueOf(l *dibs.Lease) string { return fmt.Sprintf("%d %s", l.Fence(), string(l.Token())) }

func (l dibsLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return ignoreNotHeld(l.Extend(ctx, ttl), dibs.ErrLost)
}

func (l dibsLock) unlock(context.Context) (bool, error) {
	return ignoreNotHeld(l.Unlock(), dibs.ErrLost)
}

// ignoreNotHeld returns false instead of the error not.
func ignoreNotHeld(err, not error) (bool, error) {
	if errors.Is(err, not) {
		return false, nil
	}
	return err == nil, err
}

type redsyncLocker struct{ sync *redsync.Redsync }

type redsyncLock struct{ *redsync.Mutex }

// redsyncPatience is redsync's timeout for a reply, in TTLs. Its default, a twentieth of a TTL, is
// too short for a busy machine.
const redsyncPatience = 10

func (k redsyncLocker) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	m := k.sync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(redsyncPatience), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(pollEvery))
	return redsyncLock{m}, m.LockContext(ctx)
}

func (k redsyncLocker) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	m := k.sync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(redsyncPatience))
	err := m.TryLockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken || errors.Is(err, redsync.ErrFailed) {
		err = errors.Join(errHeld, err)
	}
	return redsyncLock{m}, err
}

func (l redsyncLock) value() string { return l.Value() }

// extend extends the lock by the mutex's TTL: redsync supports no other.
func (l redsyncLock) extend(ctx context.Context, _ time.Duration) (bool, error) {
	ok, err := l.ExtendContext(ctx)
	return ignoreHeld(ok, err)
}

func (l redsyncLock) unlock(ctx context.Context) (bool, error) {
	ok, err := l.UnlockContext(ctx)
	return ignoreHeld(ok, err)
}

// ignoreHeld returns false instead of redsync's errors for another owner's lock.
func ignoreHeld(ok bool, err error) (bool, error) {
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	if taken || errors.Is(err, redsync.ErrExtendFailed) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return false, nil
	}
	return ok, err
}

type redislockLocker struct{ client *redislock.Client }

type redislockLock struct{ *redislock.Lock }

func (k redislockLocker) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	// redislock gives up after the TTL unless its context has a deadline.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	l, err := k.client.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEvery)})
	return redislockLock{l}, err
}

func (k redislockLocker) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := k.client.Obtain(ctx, key, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		err = errors.Join(errHeld, err)
	}
	return redislockLock{l}, err
}

func (l redislockLock) value() string { return l.Token() + l.Metadata() }

func (l redislockLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return ignoreNotHeld(l.Refresh(ctx, ttl, nil), redislock.ErrNotObtained)
}

func (l redislockLock) unlock(ctx context.Context) (bool, error) {
	return ignoreNotHeld(l.Release(ctx), redislock.ErrLockNotHeld)
}

// scriptLocker is the usual hand-written lock.
type scriptLocker struct{ rdb *redis.Client }

type scriptLock struct {
	rdb        *redis.Client
	key, token string
}

//go:embed testdata/unlock.lua
var unlockLua string

//go:embed testdata/extend.lua
var extendLua string

func (k scriptLocker) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	return poll(ctx, func() (lock, error) { return k.try(ctx, key, ttl) })
}

// poll tries until the key is free.
func poll(ctx context.Context, try func() (lock, error)) (lock, error) {
	for {
		l, err := try()
		if !errors.Is(err, errHeld) {
			return l, err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (k scriptLocker) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l := scriptLock{k.rdb, key, rand.Text()}
	err := k.rdb.Do(ctx, "SET", key, l.token, "NX", "PX", ttl.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		err = errHeld
	}
	return l, err
}

func (l scriptLock) value() string { return l.token }

func (l scriptLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return l.rdb.Eval(ctx, extendLua, []string{l.key}, l.token, ttl.Milliseconds()).Bool()
}

func (l scriptLock) unlock(ctx context.Context) (bool, error) {
	return l.rdb.Eval(ctx, unlockLua, []string{l.key}, l.token).Bool()
}

// carelessLocker is the hand-written lock with a common fault: it does not compare the
// value before it changes or deletes the key.
type carelessLocker struct{ rdb *redis.Client }

type carelessLock struct {
	rdb *redis.Client
	key string
}

func (k carelessLocker) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	return poll(ctx, func() (lock, error) { return k.try(ctx, key, ttl) })
}

func (k carelessLocker) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l := carelessLock{k.rdb, key}
	err := k.rdb.Do(ctx, "SET", key, l.value(), "NX", "PX", ttl.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		err = errHeld
	}
	return l, err
}

func (carelessLock) value() string { return "1" }

func (l carelessLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return l.rdb.PExpire(ctx, l.key, ttl).Result()
}

func (l carelessLock) unlock(ctx context.Context) (bool, error) {
	n, err := l.rdb.Del(ctx, l.key).Result()
	return n == 1, err
}
