package main

import (
	"context"
	"runtime"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redigostore"
	redsync "github.com/go-redsync/redsync/v4/redis"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
)

type onRedigo struct {
	conns  *redis.Pool
	script *redis.Script
}

// dialRedigo returns a library with a pool like go-redis' default pool. By default, redigo keeps no
// idle connections at all.
func dialRedigo(addr string) (library, error) {
	size, timeout := 10*runtime.GOMAXPROCS(0), 3*time.Second
	dial := func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
	}
	return onRedigo{
		conns:  &redis.Pool{DialContext: dial, MaxIdle: size, MaxActive: size, Wait: true},
		script: redis.NewScript(1, unlockLua),
	}, nil
}

// setNX does not use redigo's DoContext, which starts a goroutine for each command.
func (r onRedigo) setNX(ctx context.Context, name, token string, ttl time.Duration) (bool, error) {
	conn, err := r.conns.GetContext(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	reply, err := conn.Do("SET", name, token, "NX", "PX", ttl.Milliseconds())
	return reply != nil, err
}

func (r onRedigo) unlock(ctx context.Context, name, token string) (int64, error) {
	conn, err := r.conns.GetContext(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return redis.Int64(r.script.Do(conn, name, token))
}

func (r onRedigo) store() driver.Voter { return redigostore.New(r.conns) }
func (r onRedigo) pool() redsync.Pool  { return redsyncredigo.NewPool(r.conns) }
