// Package cache computes a cached value once, however many callers miss it. Its code is in
// docs/recipes/cache-stampede.md.
package cache

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"github.com/redis/go-redis/v9"
)

// A Cache keeps computed values in Redis.
type Cache struct {
	Locks   *dibs.Client
	Redis   *redis.Client
	Fresh   time.Duration // how long a value is fresh
	Stale   time.Duration // how much longer GetStale may return it
	Compute func(ctx context.Context, key string) (string, error)
}

// Get returns a fresh value. If there is none, one caller computes it and the others wait.
func (c *Cache) Get(ctx context.Context, key string) (string, error) {
	value, left, err := c.read(ctx, key)
	if err != nil || left > c.Stale {
		return value, err
	}
	return c.refresh(ctx, key, dibs.Wait(10*time.Second))
}

// GetStale returns a value that may be stale. If it is, one caller computes a fresh value, and the
// others do not wait. With an error, it also returns the stale value.
func (c *Cache) GetStale(ctx context.Context, key string) (string, error) {
	value, left, err := c.read(ctx, key)
	if err != nil || left > c.Stale {
		return value, err
	}
	if left <= 0 {
		return c.Get(ctx, key) // there is no value, so this caller must wait
	}
	fresh, err := c.refresh(ctx, key, dibs.Wait(0))
	switch {
	case errors.Is(err, dibs.ErrBusy):
		return value, nil
	case err != nil:
		return value, err
	}
	return fresh, nil
}

// refresh computes and writes a value under its key's lock.
func (c *Cache) refresh(ctx context.Context, key string, wait dibs.Option) (string, error) {
	return dibs.Call(ctx, c.Locks.Mutex("cache:"+key), func(ctx context.Context) (string, error) {
		value, left, err := c.read(ctx, key) // again: an earlier holder may have written it
		if err != nil || left > c.Stale {
			return value, err
		}
		if value, err = c.Compute(ctx, key); err != nil {
			return "", err
		}
		return value, c.Redis.Set(ctx, "value:"+key, value, c.Fresh+c.Stale).Err()
	}, wait)
}

// read returns a value and the time until Redis deletes it: zero if there is no value.
func (c *Cache) read(ctx context.Context, key string) (value string, left time.Duration, err error) {
	pipe := c.Redis.Pipeline()
	get, ttl := pipe.Get(ctx, "value:"+key), pipe.PTTL(ctx, "value:"+key)
	_, err = pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) {
		return "", 0, nil
	}
	return get.Val(), ttl.Val(), err
}
