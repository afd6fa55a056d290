package mysqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// maxExtend limits the leases in a statement.
const maxExtend = 500

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	// All transactions lock in the same order.
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(requests[a].Name, requests[b].Name) })
	for part := range slices.Chunk(order, maxExtend) {
		s.extend(ctx, requests, part, errs)
	}
	return errs
}

// extend extends the leases with these numbers, and sets their errors.
func (s *Store) extend(ctx context.Context, requests []driver.ExtendRequest, part []int, errs []error) {
	list := make([][]any, len(part))
	for i, j := range part {
		r := requests[j]
		s.kept.need(r.TTL)
		list[i] = []any{j, hexOf(r.Name), hexOf(r.Token), hexOf(r.Client), sqlstore.Micros(r.TTL)}
		errs[j] = driver.ErrLost
	}
	text := listText(list)
	within, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	extended, err := s.extendOnce(within, text)
	for repeatable(err) && within.Err() == nil {
		extended, err = s.extendOnce(within, text)
	}
	for _, j := range part {
		if err != nil {
			errs[j] = unavailable("extend", requests[j].Name, err)
		}
	}
	if err != nil {
		return
	}
	for _, j := range extended {
		errs[j] = nil
	}
	for _, j := range part {
		if errs[j] != nil {
			errs[j] = s.db.LossOf(within, requests[j])
		}
	}
}

// extendOnce returns the numbers of the extended leases.
func (s *Store) extendOnce(ctx context.Context, list string) (extended []int, err error) {
	var i int
	err = s.db.Each(ctx, true, s.text.extend, []any{list}, []any{&i}, func() { extended = append(extended, i) })
	return extended, err
}
