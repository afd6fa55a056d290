package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	dibsrueidis "github.com/dibslock/dibs/redisstore/rueidis"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/rueidis"
)

// The table rueidis is the uncontended one again, on another client library, which
// gathers commands by itself: a ratio to a floor says something only of peers that
// are built as that floor is.

// onRueidis measures what a lock costs that nobody else wants, on a rueidis client.
func onRueidis(b *bed, c config) ([]*table, error) {
	t := uncontendedTable("rueidis",
		"As uncontended, but on a rueidis client with its default settings.",
		"floor@rueidis: SET NX and a compare-and-delete script, built by the client's own builder.",
	)
	names := c.chosen("dibs@rueidis", "redsync@rueidis", "rueidislock")
	return t.pairs(b, c, "floor@rueidis", names)
}

func newRueidis(s site) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr}})
}

// rueidisFloor is floor on a rueidis client.
type rueidisFloor struct {
	client rueidis.Client
	unlock *rueidis.Lua
	ttl    time.Duration
	seq    atomic.Uint64
}

func openRueidisFloor(s site) (peer, error) {
	client, err := newRueidis(s)
	if err != nil {
		return nil, err
	}
	return &rueidisFloor{client: client, unlock: rueidis.NewLuaScript(unlockLua), ttl: s.ttl}, nil
}

func (f *rueidisFloor) Name() string   { return "floor@rueidis" }
func (f *rueidisFloor) Wire() []string { return []string{"set", "evalsha", "eval"} }

func (f *rueidisFloor) Lock(ctx context.Context, name string) (func() error, error) {
	token := strconv.FormatUint(f.seq.Add(1), 10)
	set := f.client.B().Set().Key(name).Value(token).Nx().Px(f.ttl).Build()
	if err := f.client.Do(ctx, set).Error(); err != nil {
		if rueidis.IsRedisNil(err) {
			return nil, errTaken
		}
		return nil, err
	}
	return func() error {
		deleted, err := f.unlock.Exec(ctx, f.client, []string{name}, []string{token}).AsInt64()
		if err == nil && deleted == 0 {
			return errNotHeld
		}
		return err
	}, nil
}

func openRueidisDibs(s site) (peer, error) {
	client, err := newRueidis(s)
	if err != nil {
		return nil, err
	}
	return rueidisDibs{dibsPeer{dibs.New(dibsrueidis.New(client), dibs.TTL(s.ttl))}}, nil
}

// rueidisDibs is dibs on a rueidis client.
type rueidisDibs struct{ dibsPeer }

func (rueidisDibs) Name() string { return "dibs@rueidis" }

// openRueidisRedsync is redsync on the client itself: its own driver goes by way of
// rueidis' imitation of go-redis, which costs more.
func openRueidisRedsync(s site) (peer, error) {
	client, err := newRueidis(s)
	if err != nil {
		return nil, err
	}
	p, err := openRedsync(s)
	if err != nil {
		return nil, err
	}
	r := p.(redsyncPeer)
	r.name = "redsync@rueidis"
	r.sync = redsync.New(redsyncPool{client})
	return r, nil
}

type redsyncPool struct{ client rueidis.Client }

// Get implements redsync's Pool.
func (p redsyncPool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	return redsyncConn{ctx: ctx, client: p.client}, nil
}

// redsyncConn is what locking and unlocking need of redsync's Conn: it panics at the rest.
type redsyncConn struct {
	redsyncredis.Conn
	ctx    context.Context
	client rueidis.Client
}

// SetNX implements redsync's Conn.
func (c redsyncConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	err := c.client.Do(c.ctx, c.client.B().Set().Key(name).Value(value).Nx().Px(expiry).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

// Eval implements redsync's Conn.
func (c redsyncConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	texts := make([]string, len(keysAndArgs))
	for i, v := range keysAndArgs {
		texts[i] = fmt.Sprint(v)
	}
	keys, args := texts[:script.KeyCount], texts[script.KeyCount:]
	b := c.client.B()
	result := c.client.Do(c.ctx, b.Evalsha().Sha1(script.Hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if err, ok := rueidis.IsRedisErr(result.Error()); ok && err.IsNoScript() {
		result = c.client.Do(c.ctx, b.Eval().Script(script.Src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	return result.ToAny()
}

// Close implements redsync's Conn.
func (c redsyncConn) Close() error { return nil }
