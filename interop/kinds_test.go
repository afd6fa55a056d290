package interop

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore/goredis"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A kind is a way to lock a key.
type kind interface {
	// lock takes the key, waiting for it, or only if it is free.
	lock(ctx context.Context, key string, ttl time.Duration) (lock, error)
	try(ctx context.Context, key string, ttl time.Duration) (lock, error)
}

// A lock is a key held.
type lock interface {
	value() string // of the key
	// Both report whether the lock was still held.
	extend(ctx context.Context, ttl time.Duration) (bool, error)
	unlock(ctx context.Context) (bool, error)
}

// errTaken is what try returns if the key is taken.
var errTaken = errors.New("taken")

// A site is a server and everybody who locks on it.
type site struct {
	*redistest.Server
	rdb   *redis.Client
	dibs  *dibs.Client
	kinds map[string]kind
}

const pollEvery = 5 * time.Millisecond

func open(t *testing.T) site {
	t.Helper()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 50})
	locks := dibs.New(goredis.New(rdb, goredis.Prefix("")), dibs.Timeout(5*time.Second)) // of a busy machine
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		rdb.Close()
	})
	return site{server, rdb, locks, map[string]kind{
		"dibs":      dibsKind{locks},
		"redsync":   redsyncKind{redsync.New(pool.NewPool(rdb))},
		"redislock": redislockKind{redislock.New(rdb)},
		"bare":      bareKind{rdb},
	}}
}

// peers are all kinds but dibs.
func (s site) peers() map[string]kind {
	peers := make(map[string]kind)
	for name, k := range s.kinds {
		if name != "dibs" {
			peers[name] = k
		}
	}
	return peers
}

type dibsKind struct{ c *dibs.Client }

type dibsLock struct{ *dibs.Lease }

func (k dibsKind) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := k.c.Mutex(key).Lock(ctx, dibs.TTL(ttl))
	return dibsLock{l}, err
}

func (k dibsKind) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := k.c.Mutex(key).TryLock(ctx, dibs.TTL(ttl))
	if errors.Is(err, dibs.ErrBusy) {
		err = errors.Join(errTaken, err)
	}
	return dibsLock{l}, err
}

func (l dibsLock) value() string { return l.Token() }

func (l dibsLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return held(l.Extend(ctx, ttl), dibs.ErrLost)
}

func (l dibsLock) unlock(context.Context) (bool, error) { return held(l.Unlock(), dibs.ErrLost) }

// held makes of an error that says "not held" a plain false.
func held(err, not error) (bool, error) {
	if errors.Is(err, not) {
		return false, nil
	}
	return err == nil, err
}

type redsyncKind struct{ sync *redsync.Redsync }

type redsyncLock struct{ *redsync.Mutex }

// busy is how many TTLs redsync waits for a reply: its own choice, a twentieth of one, is
// too little for a busy machine.
const busy = 10

func (k redsyncKind) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	m := k.sync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(busy), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(pollEvery))
	return redsyncLock{m}, m.LockContext(ctx)
}

func (k redsyncKind) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	m := k.sync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(busy))
	err := m.TryLockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken || errors.Is(err, redsync.ErrFailed) {
		err = errors.Join(errTaken, err)
	}
	return redsyncLock{m}, err
}

func (l redsyncLock) value() string { return l.Value() }

// extend by the TTL that the mutex was made with: redsync knows no other.
func (l redsyncLock) extend(ctx context.Context, _ time.Duration) (bool, error) {
	ok, err := l.ExtendContext(ctx)
	return notTaken(ok, err)
}

func (l redsyncLock) unlock(ctx context.Context) (bool, error) {
	ok, err := l.UnlockContext(ctx)
	return notTaken(ok, err)
}

// notTaken drops the errors by which redsync says that somebody else holds it.
func notTaken(ok bool, err error) (bool, error) {
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	if taken || errors.Is(err, redsync.ErrExtendFailed) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return false, nil
	}
	return ok, err
}

type redislockKind struct{ client *redislock.Client }

type redislockLock struct{ *redislock.Lock }

func (k redislockKind) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	// It gives up after the TTL unless its context has a deadline.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	l, err := k.client.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEvery)})
	return redislockLock{l}, err
}

func (k redislockKind) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := k.client.Obtain(ctx, key, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		err = errors.Join(errTaken, err)
	}
	return redislockLock{l}, err
}

func (l redislockLock) value() string { return l.Token() + l.Metadata() }

func (l redislockLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return held(l.Refresh(ctx, ttl, nil), redislock.ErrNotObtained)
}

func (l redislockLock) unlock(ctx context.Context) (bool, error) {
	return held(l.Release(ctx), redislock.ErrLockNotHeld)
}

// bareKind is what people write by hand.
type bareKind struct{ rdb *redis.Client }

type bareLock struct {
	rdb        *redis.Client
	key, token string
}

//go:embed testdata/unlock.lua
var unlockLua string

//go:embed testdata/extend.lua
var extendLua string

func (k bareKind) lock(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	for {
		l, err := k.try(ctx, key, ttl)
		if !errors.Is(err, errTaken) {
			return l, err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (k bareKind) try(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l := bareLock{k.rdb, key, rand.Text()}
	err := k.rdb.Do(ctx, "SET", key, l.token, "NX", "PX", ttl.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		err = errTaken
	}
	return l, err
}

func (l bareLock) value() string { return l.token }

func (l bareLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return l.rdb.Eval(ctx, extendLua, []string{l.key}, l.token, ttl.Milliseconds()).Bool()
}

func (l bareLock) unlock(ctx context.Context) (bool, error) {
	return l.rdb.Eval(ctx, unlockLua, []string{l.key}, l.token).Bool()
}
