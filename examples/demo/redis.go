package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/examples/internal/exstore"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// A redisData is sharedData on Redis, in plain keys.
type redisData struct {
	rdb    redis.UniversalClient
	name   string // for output
	prefix string
	store  driver.Store
}

// dataTTL is the data's TTL, so that a killed demo leaves nothing behind.
const dataTTL = 10 * time.Minute

// newPrefix returns a private random prefix.
func newPrefix() string { return "dibs:demo:" + rand.Text()[:10] + ":" }

// openServer connects to the Redis at a URL.
func openServer(ctx context.Context, url, prefix string) (*redisData, error) {
	rdb, name, err := exstore.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	// The hash tag puts all demos' locks into the same slot. dibs stores a fence high-water mark
	// per slot and never deletes it: so all demos together leave a single key.
	store := goredisstore.New(rdb, redisstore.Prefix(prefix+"{demo}:"))
	return &redisData{rdb: rdb, name: name, prefix: prefix, store: store}, nil
}

func (s *redisData) locks() driver.Store       { return s.store }
func (s *redisData) number(name string) number { return &redisNumber{s.rdb, s.prefix + name} }
func (s *redisData) register() register        { return &redisRegister{s.rdb, s.prefix + "register"} }

// clean deletes all keys with the prefix, on all nodes in a cluster.
func (s *redisData) clean(ctx context.Context) (err error) {
	if nodes, ok := s.rdb.(*redis.ClusterClient); ok {
		err = nodes.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return s.deleteKeys(ctx, node) })
	} else {
		err = s.deleteKeys(ctx, s.rdb)
	}
	if err != nil {
		return fmt.Errorf("clean up %s*: %w", s.prefix, err)
	}
	return nil
}

// deleteKeys deletes a node's keys.
func (s *redisData) deleteKeys(ctx context.Context, node redis.Cmdable) error {
	const page = 1000
	keys := node.Scan(ctx, 0, s.prefix+"*", page).Iterator()
	for keys.Next(ctx) {
		if err := s.rdb.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

type redisNumber struct {
	rdb redis.UniversalClient
	key string
}

func (n *redisNumber) get(ctx context.Context) (int64, error) {
	value, err := n.rdb.Get(ctx, n.key).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return value, err
}

func (n *redisNumber) set(ctx context.Context, value int64) error {
	return n.rdb.Set(ctx, n.key, value, dataTTL).Err()
}

//go:embed register.lua
var registerScript string

type redisRegister struct {
	rdb redis.UniversalClient
	key string
}

func (r *redisRegister) write(ctx context.Context, fence uint64) (bool, error) {
	return r.rdb.Eval(ctx, registerScript, []string{r.key}, fence, dataTTL.Milliseconds()).Bool()
}

func (r *redisRegister) largest(ctx context.Context) (uint64, error) {
	fence, err := r.rdb.Get(ctx, r.key).Uint64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return fence, err
}
