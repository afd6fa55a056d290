package pgstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// maxExtend limits the leases in a statement.
const maxExtend = 512

var errLocked = errors.New("another transaction has locked the row of the lease")

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, 0, len(requests))
	for part := range slices.Chunk(requests, maxExtend) {
		errs = append(errs, s.extend(ctx, part)...)
	}
	return errs
}

// extend extends up to maxExtend leases. Those whose rows are locked are tried again until the
// context ends.
func (s *Store) extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	within, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	errs := slices.Repeat([]error{unavailable("extend", "", errLocked)}, len(requests))
	left := make([]int, len(requests))
	for i := range left {
		left[i] = i
	}
	for pause := time.Millisecond; len(left) > 0; pause = min(2*pause, 50*time.Millisecond) {
		part := make([]driver.ExtendRequest, len(left))
		for i, j := range left {
			part[i] = requests[j]
		}
		results, err := s.extendOnce(within, part)
		if repeatable(err) {
			results, err = slices.Repeat([]result{locked}, len(part)), nil
		}
		if err != nil {
			for _, j := range left {
				errs[j] = unavailable("extend", requests[j].Name, err)
			}
			return errs
		}
		var again []int
		for i, j := range left {
			switch results[i] {
			case extended:
				errs[j] = nil
			case lost:
				errs[j] = s.db.LossOf(within, requests[j])
			default:
				again = append(again, j)
			}
		}
		left = again
		if len(left) == 0 {
			break
		}
		select {
		case <-time.After(pause):
		case <-within.Done():
			return errs
		}
	}
	return errs
}

// A result is an extension's result.
type result int

const (
	lost result = iota
	extended
	locked
)

func (s *Store) extendOnce(ctx context.Context, requests []driver.ExtendRequest) ([]result, error) {
	names, tokens, clients := make([]string, len(requests)), make([]string, len(requests)), make([]string, len(requests))
	ttls := make([]int64, len(requests))
	for i, r := range requests {
		names[i], tokens[i], clients[i], ttls[i] = toText(r.Name), toText(r.Token), toText(r.Client), sqlstore.Micros(r.TTL)
	}
	results := make([]result, len(requests))
	var i int
	var done, exists bool
	err := s.db.Each(ctx, true, s.text.extend, []any{names, tokens, clients, ttls}, []any{&i, &done, &exists}, func() {
		switch {
		case done:
			results[i-1] = extended
		case exists:
			results[i-1] = locked
		}
	})
	return results, err
}
