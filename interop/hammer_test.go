package interop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A load is work on a counter protected only by a lock.
type load struct {
	counter string // its key; counter:inside counts the workers holding the lock
	workers int
	long    time.Duration // whole seconds
	ttl     time.Duration
	work    time.Duration // between reading and writing the counter
	pause   time.Duration // after a release, on average
}

// A result is the result of a library's workers.
type result struct {
	turns    int
	least    int           // the fewest turns for any worker
	overlaps int           // turns begun while another worker held the lock
	longest  time.Duration // wait
	failures int           // failed calls to the library
	failure  string        // an example
}

// add adds a worker's result.
func (r *result) add(w result) {
	r.turns += w.turns
	r.least = min(r.least, w.turns)
	r.overlaps += w.overlaps
	r.longest = max(r.longest, w.longest)
	r.failures += w.failures
	if w.failures > 0 {
		r.failure = w.failure
	}
}

func (r *result) fail(err error) {
	r.failures++
	r.failure = err.Error()
}

// A hammerer is a library with support for a counter.
type hammerer interface {
	locker
	hammer(ctx context.Context, name string, l load) (result, error)
}

// A goHammerer is a Go library. A driver in another language does the same in its process.
type goHammerer struct {
	locker
	rdb redis.Cmdable
}

func (h goHammerer) hammer(ctx context.Context, name string, l load) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, l.long)
	defer cancel()
	var (
		mu    sync.Mutex
		total = result{least: math.MaxInt}
		errs  []error
		group sync.WaitGroup
	)
	for range l.workers {
		group.Go(func() {
			r, err := h.worker(ctx, name, l)
			mu.Lock()
			defer mu.Unlock()
			total.add(r)
			errs = append(errs, err)
		})
	}
	group.Wait()
	return total, errors.Join(errs...)
}

// worker takes turns until ctx ends. An error comes from the counter, not from the library.
func (h goHammerer) worker(ctx context.Context, name string, l load) (result, error) {
	var r result
	for ctx.Err() == nil {
		begin := time.Now()
		held, err := h.lock(ctx, name, l.ttl)
		r.longest = max(r.longest, time.Since(begin))
		if err != nil && ctx.Err() != nil {
			break
		}
		if err != nil {
			r.fail(err)
			time.Sleep(l.work)
			continue
		}
		overlap, err := h.turn(context.WithoutCancel(ctx), l)
		if err != nil {
			return r, err
		}
		r.turns++
		if overlap {
			r.overlaps++
		}
		if ok, err := held.unlock(context.WithoutCancel(ctx)); err != nil || !ok {
			r.fail(fmt.Errorf("unlock after the work: %v, %w", ok, err))
		}
		time.Sleep(rand.N(2*l.pause + 1))
	}
	return r, nil
}

// turn increments the counter.
func (h goHammerer) turn(ctx context.Context, l load) (overlap bool, err error) {
	inside := h.rdb.Incr(ctx, l.counter+":inside")
	text, err := h.rdb.Get(ctx, l.counter).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	count, err := strconv.Atoi("0" + text)
	if err != nil {
		return false, err
	}
	time.Sleep(l.work)
	set := h.rdb.Set(ctx, l.counter, count+1, 0)
	outside := h.rdb.Decr(ctx, l.counter+":inside")
	return inside.Val() != 1, errors.Join(inside.Err(), set.Err(), outside.Err())
}
