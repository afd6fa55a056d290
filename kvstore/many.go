package kvstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/glob"
)

// together is the number of requests in flight for a single operation.
const together = 16

// each calls f with the indexes below n, several at a time.
func each(n int, f func(i int)) {
	var running sync.WaitGroup
	turns := make(chan struct{}, together)
	for i := range n {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			f(i)
		})
	}
	running.Wait()
}

// extend extends each name's leases by a single change to its key.
func (s *service) extend(ctx context.Context, o *Operation) error {
	o.errs = make([]error, len(o.extend))
	byName := make(map[string][]int)
	var names []string
	for i, r := range o.extend {
		if byName[r.Name] == nil {
			names = append(names, r.Name)
		}
		byName[r.Name] = append(byName[r.Name], i)
	}
	each(len(names), func(n int) {
		indexes := byName[names[n]]
		part := &Operation{verb: extend, name: names[n]}
		for _, i := range indexes {
			part.extend = append(part.extend, o.extend[i])
		}
		err := s.change(ctx, part)
		for j, i := range indexes {
			if o.errs[i] = part.wrap(err); err == nil {
				o.errs[i] = part.errs[j]
			}
		}
	})
	return nil
}

// inspect reads each name's state. Another program's value is also a state.
func (s *service) inspect(ctx context.Context, o *Operation) error {
	at, err := s.bucket.Now(ctx)
	if err != nil {
		return err
	}
	o.states = make([]driver.State, len(o.names))
	errs := make([]error, len(o.names))
	each(len(o.names), func(i int) {
		last, err := s.read(ctx, o.names[i])
		state, wrong := wrongTypeState(o.names[i], err)
		switch {
		case wrong:
			o.states[i] = state
		case err != nil:
			errs[i] = err
		default:
			o.states[i] = last.table(o.names[i]).Inspect(o.names[i], last.now(at))
		}
	})
	return errors.Join(errs...)
}

// list reads all matching names. It leaves out other programs' values.
func (s *service) list(ctx context.Context, o *Operation) error {
	pattern, err := glob.Parse(o.pattern)
	if err != nil {
		return err
	}
	at, err := s.bucket.Now(ctx)
	if err != nil {
		return err
	}
	names, err := s.names(ctx, pattern.Matches)
	if err != nil {
		return err
	}
	held := make([][]string, len(names))
	errs := make([]error, len(names))
	each(len(names), func(i int) {
		last, err := s.read(ctx, names[i])
		_, wrong := wrongTypeState(names[i], err)
		switch {
		case wrong:
		case err != nil:
			errs[i] = err
		default:
			held[i], errs[i] = last.table(names[i]).List("*", last.now(at))
		}
	})
	for _, one := range held {
		o.listed = append(o.listed, one...)
	}
	return errors.Join(errs...)
}

// names returns the matching names with a key.
func (s *service) names(ctx context.Context, matches func(name string) bool) (names []string, err error) {
	err = s.bucket.List(ctx, lockPrefix, func(key string) {
		if name, ok := decodeKey(lockPrefix, key); ok && matches(name) {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names), err
}
