package etcdstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// NotifyWanted implements driver.WantedNotifier. This process watches the queue until a request
// waits, or the lease ends.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	ctx, cancel, err := s.begin(ctx, "notify wanted", r.Name, noLimit)
	if err != nil {
		return false, err
	}
	defer cancel()
	q, _, err := s.read(ctx, r.Name)
	if err != nil {
		return false, unavailable("notify wanted", r.Name, err)
	}
	i := q.holder(r.Token)
	if i < 0 || q[i].Reserved {
		return false, nil
	}
	if len(q.waiters()) > 0 {
		return true, nil
	}
	if in := s.inboxes.Get(r.Client); in != nil {
		rec := record{name: r.Name, token: r.Token, key: q[i].key, created: q[i].created}
		s.views.add(&interest{in: in, rec: rec, wanted: true})
	}
	return false, nil
}
