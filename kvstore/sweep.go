package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// A record without holders and waiters is kept for a while. It contains its name's fence high-water
// mark. While it exists, a late Swap conflicts if its operation found no key. A Swap whose
// operation found a record conflicts for ever, because its revision never comes again. After a
// while a sweep deletes the record. Before that, it raises the mark for all names without a key. A
// client reads this mark after it found a name without a key, so it can find no smaller fence.
const (
	keepUnused    = time.Minute
	sweepInterval = time.Minute // for all clients of a bucket together
	sweepTimeout  = time.Minute
	sweepTogether = 1000 // names read before the first deletion
)

// A fenceMark is the value of fenceKey.
type fenceMark struct {
	Fence uint64        `json:"f"`           // no name without a key had a larger fence
	Sweep time.Duration `json:"s,omitempty"` // when the next sweep is due, as Now.At
}

func (s *service) mark(ctx context.Context) (m fenceMark, revision uint64, err error) {
	v, err := s.bucket.Get(ctx, fenceKey)
	if err != nil || v.Revision == 0 {
		return fenceMark{}, 0, err
	}
	if err = json.Unmarshal(v.Bytes, &m); err == nil && m == (fenceMark{}) {
		err = errNoWriter
	}
	if err != nil {
		return fenceMark{}, 0, &wrongType{fenceKey, isNoMark, err}
	}
	return m, v.Revision, nil
}

// changeMark changes the mark with f, unless f returns false.
func (s *service) changeMark(ctx context.Context, f func(*fenceMark) bool) (changed bool, err error) {
	for attempt := 0; ; attempt++ {
		began := time.Now()
		m, revision, err := s.mark(ctx)
		if err != nil || !f(&m) {
			return false, err
		}
		text, err := json.Marshal(m)
		if err != nil {
			return false, err
		}
		if err := s.bucket.Swap(ctx, fenceKey, text, revision); !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
		if err := pause(ctx, attempt, time.Since(began)); err != nil {
			return false, err
		}
	}
}

// sweepWhile sweeps from time to time until ctx ends, while busy returns true. The next sweep, by
// any client, makes up for a failed sweep.
func (s *service) sweepWhile(ctx context.Context, busy func() bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepInterval + rand.N(sweepInterval)):
		}
		if busy() {
			_ = s.sweep(ctx)
		}
	}
}

// sweep deletes unused keys, if no other client did so recently.
func (s *service) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	at, err := s.bucket.Now(ctx)
	if err != nil {
		return err
	}
	now := time.Duration(at.UnixNano())
	due, err := s.changeMark(ctx, func(m *fenceMark) bool {
		is := m.Sweep <= now || m.Sweep > now+sweepInterval // the clock was set back
		m.Sweep = now + sweepInterval
		return is
	})
	if !due || err != nil {
		return err
	}
	parts := []func(context.Context, time.Time) error{s.sweepNames, s.sweepInboxes}
	errs := make([]error, len(parts))
	each(len(parts), func(i int) { errs[i] = parts[i](ctx, at) })
	return errors.Join(errs...)
}

// sweepNames sweeps all names, some at a time, so an incomplete sweep also deletes some keys. It
// begins with a random name, so each name has its turn.
func (s *service) sweepNames(ctx context.Context, at time.Time) error {
	names, err := s.names(ctx, func(string) bool { return true })
	if err != nil || len(names) == 0 {
		return err
	}
	chunks := slices.Collect(slices.Chunk(names, sweepTogether))
	first := rand.N(len(chunks))
	var errs []error
	for _, chunk := range slices.Concat(chunks[first:], chunks[:first]) {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		errs = append(errs, s.sweepChunk(ctx, chunk, at))
	}
	return errors.Join(errs...)
}

// sweepChunk examines the names unused for keepUnused. It removes expired entries, and deletes the
// keys that had no holder and no waiter all the time.
func (s *service) sweepChunk(ctx context.Context, names []string, at time.Time) error {
	unused := make([]stored, len(names))
	errs := make([]error, len(names))
	each(len(names), func(i int) {
		r, err := s.read(ctx, names[i])
		switch {
		case err != nil:
			errs[i] = err
		case r.revision == 0 || r.now(at).At-r.Changed < keepUnused:
		case r.used():
			errs[i] = s.change(ctx, &Operation{verb: expire, name: names[i]})
		default:
			unused[i] = r
		}
	})
	return errors.Join(errors.Join(errs...), s.removeNames(ctx, names, unused))
}

// removeNames deletes the keys of names without state. An entry in unused is empty if the name has
// state.
func (s *service) removeNames(ctx context.Context, names []string, unused []stored) error {
	var fence uint64
	for _, r := range unused {
		fence = max(fence, r.Fence)
	}
	_, err := s.changeMark(ctx, func(m *fenceMark) bool {
		higher := fence > m.Fence
		m.Fence = max(m.Fence, fence)
		return higher
	})
	if err != nil {
		return err
	}
	errs := make([]error, len(names))
	each(len(names), func(i int) {
		if r := unused[i]; r.revision != 0 {
			errs[i] = s.remove(ctx, encodeKey(lockPrefix, names[i]), r.revision)
		}
	})
	return errors.Join(errs...)
}

// sweepInboxes deletes inboxes that received nothing for keepUnused.
func (s *service) sweepInboxes(ctx context.Context, at time.Time) error {
	var keys []string
	if err := s.bucket.List(ctx, inboxPrefix, func(key string) { keys = append(keys, key) }); err != nil {
		return err
	}
	old := uint64(at.Add(-keepUnused).UnixMicro())
	errs := make([]error, len(keys))
	each(len(keys), func(i int) {
		v, err := s.bucket.Get(ctx, keys[i])
		m := decodeInbox(v)
		if err != nil || m.isForeign() || m.last() > old {
			errs[i] = err
			return
		}
		errs[i] = s.remove(ctx, keys[i], v.Revision)
	})
	return errors.Join(errs...)
}

// remove deletes a key unless it changed.
func (s *service) remove(ctx context.Context, key string, revision uint64) error {
	err := s.bucket.Swap(ctx, key, nil, revision)
	if errors.Is(err, ErrConflict) {
		return nil // it is in use again
	}
	return err
}
