package history_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/memstore"
)

// Each judge of an episode should find a planted bug within 20 seeds:
//   - a release is lost: a release of a name that was extended to more than a minute does
//     nothing
//   - a late acquire: a request has an effect after its token was released
//   - a kept lease: each third release does nothing
//   - a short extension: an extension lasts for half a minute at most
//   - no upgrade: an upgraded lease stays a reader's
var episodeBugs = map[string]func(driver.Store) driver.Store{
	"extensions and an outage":     func(s driver.Store) driver.Store { return &keepsLong{Full: driver.Complete(s)} },
	"detach beside lost replies":   func(s driver.Store) driver.Store { return &acquiresAgain{Full: driver.Complete(s)} },
	"hooks that do not return":     func(s driver.Store) driver.Store { return keepsThird{&bug{Full: driver.Complete(s)}} },
	"extend a reserved hand-off":   func(s driver.Store) driver.Store { return shortExtension{driver.Complete(s)} },
	"concurrent changes of weight": func(s driver.Store) driver.Store { return noUpgrade{driver.Complete(s)} },
}

func TestPlantedBugsOfEpisodesAreFound(t *testing.T) {
	for what, plant := range episodeBugs {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20 * episodesOfSeed) {
				var err error
				synctest.Test(t, func(t *testing.T) { err = runEpisode(t, plant(memstore.New()), episodes[what], seed) })
				if err != nil {
					t.Logf("in episode %d: %v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}

type keepsLong struct {
	*driver.Full
	mu   sync.Mutex
	long bool
}

func (s *keepsLong) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	s.mu.Lock()
	s.long = s.long || requests[0].TTL > time.Minute
	s.mu.Unlock()
	return s.Store.Extend(ctx, requests)
}

func (s *keepsLong) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.long {
		return true, nil
	}
	return s.Store.Release(ctx, r)
}

// acquiresAgain repeats the last acquire a moment after a release.
type acquiresAgain struct {
	*driver.Full
	mu   sync.Mutex
	last driver.AcquireRequest
}

func (s *acquiresAgain) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	s.mu.Lock()
	s.last = r
	s.mu.Unlock()
	return s.Store.Acquire(ctx, r)
}

func (s *acquiresAgain) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	held, err := s.Store.Release(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Until = time.Time{}
	_, _ = s.Store.Acquire(context.WithoutCancel(ctx), s.last)
	return held, err
}

type keepsThird struct{ *bug }

func (s keepsThird) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if s.every(3) {
		return true, nil
	}
	return s.Store.Release(ctx, r)
}

type shortExtension struct{ *driver.Full }

func (s shortExtension) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	short := make([]driver.ExtendRequest, len(requests))
	for i, r := range requests {
		r.TTL = min(r.TTL, 30*time.Second)
		short[i] = r
	}
	return s.Store.Extend(ctx, short)
}

type noUpgrade struct{ *driver.Full }

func (s noUpgrade) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	r.Weight, r.Limit = 1, driver.Unlimited
	return s.Full.Resize(ctx, r)
}

// The queue rules should find planted bugs within 20 seeds: a waiter moved to the end of its queue,
// and a dead waiter that never loses its place.
func TestPlantedBugsOfQueuesAreFound(t *testing.T) {
	for what, plant := range map[history.Rule]func(*bug) driver.Store{
		history.Place:  func(b *bug) driver.Store { return movedBack{b} },
		history.Served: func(b *bug) driver.Store { return &neverDead{bug: b} },
	} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				found := false
				synctest.Test(t, func(t *testing.T) {
					store := plant(&bug{Full: driver.Complete(memstore.New()), queued: make(map[string]driver.AcquireRequest)})
					violations, _ := history.RunQueues(t.Context(), store, bubbleTime{}, history.QueuePlan{Seed: seed, Forgets: true})
					for _, v := range violations {
						found = found || v.Rule == what
					}
				})
				if found {
					t.Logf("with seed %d", seed)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// neverDead sends the heartbeats for the first multi-name waiter that it sees.
type neverDead struct {
	*bug
	first driver.AcquireRequest
}

func (s *neverDead) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if r.Queue && len(r.With) > 0 && s.first.Token == "" {
		s.first = r
		s.first.Until = time.Time{}
	}
	a, err := s.Store.Acquire(ctx, r)
	if s.first.Token != "" && r.Token != s.first.Token {
		if _, err := s.Store.Acquire(ctx, s.first); err != nil {
			return a, err
		}
	}
	return a, err
}
