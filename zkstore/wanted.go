package zkstore

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
	wanted, err := s.notifyWanted(ctx, r)
	if err != nil {
		return false, unavailable("notify wanted", r.Name, err)
	}
	return wanted, nil
}

func (s *Store) notifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	l, err := s.sessions.get(ctx)
	if err != nil {
		return false, err
	}
	q, _, err := s.readFresh(ctx, l, r.Name)
	if err != nil {
		return false, err
	}
	i := q.findID(idOf(r.Token))
	if i < 0 || i >= q.granted() {
		return false, nil
	}
	data, _, err := l.get(ctx, s.keys.entry(r.Name, q[i].name))
	if isRefusal(err) {
		return false, nil // it is gone
	}
	if err != nil {
		return false, err
	}
	if v, ok := parseValue(data); !ok || q[i].reserved || v.Waiting {
		return false, nil
	}
	if len(q) > q.granted() {
		return true, nil
	}
	if in := s.inboxes.Get(r.Client); in != nil {
		rec := record{name: r.Name, token: r.Token, entry: q[i]}
		s.addWanted(&interest{in: in, rec: rec, link: l, wanted: true})
	}
	return false, nil
}

// addWanted adds an interest, which lasts no longer than its client's Watch.
func (s *Store) addWanted(i *interest) { context.AfterFunc(i.in.Context, s.views.add(i)) }
