package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A service is the lock tables in a bucket, with a key for each name.
type service struct {
	bucket Bucket
	turns  turns
}

// Do implements Tables.
func (s *service) Do(ctx context.Context, o *Operation) error {
	ctx, cancel := context.WithDeadlineCause(ctx, o.Deadline(ctx), locktable.ErrLate)
	defer cancel()
	switch o.verb {
	case extend:
		return s.extend(ctx, o)
	case inspect:
		return s.inspect(ctx, o)
	case list:
		return s.list(ctx, o)
	}
	return s.change(ctx, o)
}

// change runs an operation on its name's key, and then sends its notifications.
func (s *service) change(ctx context.Context, o *Operation) error {
	if err := checkOne(o); err != nil {
		return err
	}
	done, err := s.turns.wait(ctx, encodeKey(lockPrefix, o.Name()))
	if err != nil {
		return err
	}
	notifications, at, err := s.swap(ctx, o)
	done()
	s.notify(ctx, notifications, at)
	return err
}

// swap runs an operation, repeatedly until no other client changed the key between the Get and the
// Swap. It returns the notifications to send, and the time.
func (s *service) swap(ctx context.Context, o *Operation) (notifications []Notification, at time.Time, err error) {
	name := o.Name()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		last, at, err := s.open(ctx, name)
		if err != nil {
			return nil, at, err
		}
		now := last.now(at)
		table := last.table(name)
		notifications := o.Run(table, now)
		next := last.with(table, name)
		changed, err := last.isChanged(next)
		if err != nil || !changed && !o.final() {
			return nil, at, err
		}
		next.Changed, next.Writer = now.At, rand.Uint64()|1
		err = s.write(ctx, name, next, last.revision)
		if err == nil || !errors.Is(err, ErrConflict) && s.isWriter(ctx, name, next.Writer) {
			return notifications, at, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, at, err // the outcome is unknown
		}
		if o.byHolder() {
			attempt = 0 // the others wait for it
		}
		if err := pause(ctx, attempt, time.Since(began)); err != nil {
			return nil, at, err
		}
	}
}

// isWriter reports whether a name's last Swap was the Swap with this number, whose reply was lost.
func (s *service) isWriter(ctx context.Context, name string, writer uint64) bool {
	last, err := s.read(ctx, name)
	return err == nil && last.Writer == writer
}

func checkOne(o *Operation) error {
	if len(o.acquire.With) > 0 {
		return fmt.Errorf("%w: %s %q and others: this store changes one name at a time: see Groups", driver.ErrInvalid, o.verb, o.Name())
	}
	return driver.CheckName(o.Name())
}

// open reads a name's record, and the clock at the same time.
func (s *service) open(ctx context.Context, name string) (last stored, at time.Time, err error) {
	var clock sync.WaitGroup
	var clockErr error
	clock.Go(func() { at, clockErr = s.bucket.Now(ctx) })
	last, err = s.read(ctx, name)
	clock.Wait()
	return last, at, errors.Join(err, clockErr)
}

// read reads a name's record. All names without a key share a fence high-water mark. It is read
// after the key was found to be missing: see sweep.
func (s *service) read(ctx context.Context, name string) (stored, error) {
	key := encodeKey(lockPrefix, name)
	v, err := s.bucket.Get(ctx, key)
	if err != nil {
		return stored{}, err
	}
	last, err := decodeStored(key, v)
	if err != nil || last.revision != 0 {
		return last, err
	}
	mark, _, err := s.mark(ctx)
	last.Fence = mark.Fence
	return last, err
}

func (s *service) write(ctx context.Context, name string, r record, revision uint64) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.bucket.Swap(ctx, encodeKey(lockPrefix, name), text, revision)
}

// pause waits before the next attempt, or returns an error if ctx ends. The more clients change a
// key at the same time, the longer they wait. The unit is the duration of an attempt.
func pause(ctx context.Context, attempt int, took time.Duration) error {
	const shortest, longest = 100 * time.Microsecond, time.Second
	most := min(max(took, shortest)<<min(attempt, 10), longest)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(rand.N(most)):
		return nil
	}
}
