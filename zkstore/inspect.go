package zkstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/glob"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/go-zookeeper/zk"
)

// shown is the number of holders or waiters in a state.
const shown = 100

// A detail is an entry with its value.
type detail struct {
	entry
	value value
	data  []byte
	stat  *zk.Stat
}

// detailsOf reads the values of some entries. Those that ended meanwhile are missing.
func (s *Store) detailsOf(ctx context.Context, l *link, name string, some queue) ([]detail, error) {
	all := make([]detail, len(some))
	var mu sync.Mutex
	var failed error
	concurrentlyN(len(some), func(i int) {
		data, stat, err := l.get(ctx, s.keys.entry(name, some[i].name))
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return
		case err != nil:
			mu.Lock()
			defer mu.Unlock()
			failed = err
			return
		}
		d := detail{entry: some[i], data: data, stat: stat}
		var ok bool
		if d.value, ok = parseValue(data); !ok {
			d.id = "" // another program wrote it
		}
		all[i] = d
	})
	return slices.DeleteFunc(all, func(d detail) bool { return d.name == "" }), failed
}

// Inspect implements driver.Inspector.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	ctx, cancel, err := s.begin(ctx, "inspect", name, noLimit)
	if err != nil {
		return driver.State{}, err
	}
	defer cancel()
	l, err := s.sessions.get(ctx)
	if err == nil {
		err = l.sync(ctx, s.keys.prefix)
	}
	var state driver.State
	if err == nil {
		state, err = s.inspect(ctx, l, name)
	}
	if err != nil {
		return driver.State{}, unavailable("inspect", name, err)
	}
	return state, nil
}

// InspectAll implements driver.Lister. It reads each entry with its own request.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
	}
	ctx, cancel, err := s.begin(ctx, "inspect", "", noLimit)
	if err != nil {
		return nil, err
	}
	defer cancel()
	l, err := s.sessions.get(ctx)
	if err == nil {
		err = l.sync(ctx, s.keys.prefix)
	}
	if err != nil {
		return nil, unavailable("inspect", "", err)
	}
	states := make([]driver.State, len(names))
	errs := make([]error, len(names))
	concurrentlyN(len(names), func(i int) {
		states[i], errs[i] = s.inspect(ctx, l, names[i])
		var other *driver.WrongTypeError
		switch {
		case errors.As(errs[i], &other):
			states[i], errs[i] = other.State, nil
			states[i].Name = names[i]
		case errors.Is(errs[i], zk.ErrNoAuth):
			states[i], errs[i] = driver.State{Name: names[i], Err: unavailable("inspect", names[i], errs[i])}, nil
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, unavailable("inspect", "", err)
	}
	return states, nil
}

// inspect describes a queue.
func (s *Store) inspect(ctx context.Context, l *link, name string) (driver.State, error) {
	q, pzxid, err := s.read(ctx, l, name)
	if err != nil {
		return driver.State{}, err
	}
	n := q.granted()
	holders, err := s.detailsOf(ctx, l, name, q[:n])
	if err != nil {
		return driver.State{}, err
	}
	waiters, err := s.detailsOf(ctx, l, name, q[n:min(len(q), n+shown)])
	if err != nil {
		return driver.State{}, err
	}
	state := driver.State{Name: name, Waiting: len(q) - n, Fence: s.fences.upTo(pzxid)}
	if len(q) == 0 {
		state.Fence = s.fences.base.Load()
	}
	for _, d := range holders {
		if d.value.Waiting {
			state.Waiting++
			waiters = slices.Insert(waiters, 0, d)
			continue
		}
		h, over, err := s.describe(ctx, l, name, d)
		if err != nil {
			return driver.State{}, err
		}
		if over {
			continue
		}
		if d.foreign() {
			state.Foreign = s.describeForeign(name, d)
		}
		state.Holding++
		state.Holders = append(state.Holders, h)
	}
	slices.SortStableFunc(state.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Remaining, b.Remaining) })
	state.Holders = state.Holders[:min(len(state.Holders), shown)]
	for _, d := range waiters[:min(len(waiters), shown)] {
		state.Waiters = append(state.Waiters, describeWaiter(d))
	}
	return state, nil
}

func describeWaiter(d detail) driver.Waiter {
	token := d.value.Token
	if d.foreign() {
		token = d.name
	}
	w := ownertoken.NewWaiter(token, d.weight, d.limit)
	if d.value.Since != 0 {
		w.Waited = max(0, time.Since(time.UnixMilli(d.value.Since)))
	}
	return w
}

// describe describes a holder. It reports whether the holder's persistent entry is over.
func (s *Store) describe(ctx context.Context, l *link, name string, d detail) (h driver.Holder, over bool, err error) {
	weight := d.weight
	if d.exclusive() {
		weight = 0
	}
	if d.foreign() {
		h = ownertoken.NewHolder(d.name, weight)
		h.Owner = labelOf(d.data)
		h.Label = h.Owner
		h.Remaining = driver.WaiterTTL // its session's timeout is unknown
		if d.stat.EphemeralOwner == 0 {
			h.Remaining = -1
		}
		return h, false, nil
	}
	h = ownertoken.NewHolder(d.value.Token, weight)
	h.Fence, h.Reserved, h.Remaining = d.value.Fence, d.reserved, d.value.ttl()
	if d.value.Since > 0 {
		h.Since = time.UnixMilli(d.value.Since)
	}
	if d.persistent {
		h.Remaining, err = s.remainingOf(ctx, l, d.value, d.stat)
		return h, h.Remaining <= 0, err
	}
	if rec, ok := s.records.get(name, d.value.Token); ok && rec.entry.name == d.name && rec.held {
		h.Fence = rec.fence
		if rec.expires > 0 {
			h.Remaining = max(rec.expires-s.clock.Check(), time.Millisecond)
		}
	}
	return h, false, nil
}

// List implements driver.Lister. It reads each name's znode with its own request.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	matching, err := glob.Parse(pattern)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := s.begin(ctx, "list", "", noLimit)
	if err != nil {
		return nil, err
	}
	defer cancel()
	names, err = s.list(ctx, matching)
	if err != nil {
		return nil, unavailable("list", "", err)
	}
	return names, nil
}

func (s *Store) list(ctx context.Context, matching glob.Pattern) ([]string, error) {
	l, err := s.sessions.get(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.sync(ctx, s.keys.prefix); err != nil {
		return nil, err
	}
	children, _, _, err := l.children(ctx, s.keys.prefix, false)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var names []string
	var failed error
	concurrently(children, func(child string) {
		name, ok := s.keys.nameOf(child)
		if !ok || !matching.Matches(name) {
			return
		}
		held, err := call(ctx, l, func(c *zk.Conn) (bool, error) {
			_, stat, err := c.Exists(s.keys.prefix + "/" + child)
			return err == nil && stat.NumChildren > 0, err
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = err
		}
		if held {
			names = append(names, name)
		}
	})
	return names, failed
}
