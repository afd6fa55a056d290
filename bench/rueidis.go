package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/rueidisstore"
	redsync "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/rueidis"
)

type onRueidis struct {
	client rueidis.Client
	script *rueidis.Lua
}

func dialRueidis(addr string) (library, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	return onRueidis{client, rueidis.NewLuaScript(unlockLua)}, err
}

func (r onRueidis) setNX(ctx context.Context, name, token string, ttl time.Duration) (bool, error) {
	err := r.client.Do(ctx, r.client.B().Set().Key(name).Value(token).Nx().Px(ttl).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

func (r onRueidis) unlock(ctx context.Context, name, token string) (int64, error) {
	return r.script.Exec(ctx, r.client, []string{name}, []string{token}).AsInt64()
}

func (r onRueidis) store() driver.Voter { return rueidisstore.New(r.client) }
func (r onRueidis) pool() redsync.Pool  { return redsyncPool{r} }

// redsyncPool connects redsync directly to the client. redsync's own driver uses rueidis'
// compatibility layer for go-redis, which costs more.
type redsyncPool struct{ lib onRueidis }

// Get implements redsync's Pool.
func (p redsyncPool) Get(ctx context.Context) (redsync.Conn, error) {
	return redsyncConn{ctx: ctx, lib: p.lib}, nil
}

// redsyncConn implements the methods in redsync's Conn for locking and unlocking. The others panic.
type redsyncConn struct {
	redsync.Conn
	ctx context.Context
	lib onRueidis
}

// SetNX implements redsync's Conn.
func (c redsyncConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	return c.lib.setNX(c.ctx, name, value, expiry)
}

// Eval implements redsync's Conn.
func (c redsyncConn) Eval(script *redsync.Script, keysAndArgs ...any) (any, error) {
	texts := make([]string, len(keysAndArgs))
	for i, v := range keysAndArgs {
		texts[i] = fmt.Sprint(v)
	}
	keys, args := texts[:script.KeyCount], texts[script.KeyCount:]
	client := c.lib.client
	b := client.B()
	result := client.Do(c.ctx, b.Evalsha().Sha1(script.Hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if err, ok := rueidis.IsRedisErr(result.Error()); ok && err.IsNoScript() {
		result = client.Do(c.ctx, b.Eval().Script(script.Src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	return result.ToAny()
}

// Close implements redsync's Conn.
func (c redsyncConn) Close() error { return nil }
