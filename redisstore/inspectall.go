package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// How many calls a single InspectAll makes at once. The pipeline sends concurrent calls together,
// and requests for locks wait behind them. On a cluster most calls are short: each contains the
// names in one slot.
const (
	inspectsAtOnce        = 4
	inspectsAtOnceSharded = 64
)

// InspectAll implements driver.Lister. Where possible, it first reads names with plain commands, a
// hundred names in a round trip. This is enough for exclusive holders without waiters. A script
// call then inspects up to a hundred of the other names, on a cluster only names in the same slot.
// Some names need their own script call: all names in Redisson mode, otherwise names whose keys
// hold values with other types. If ctx has no deadline, driver.OperationTimeout limits each call.
// InspectAll returns the first error.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	for _, name := range names {
		if err := s.check(name); err != nil {
			return nil, err
		}
	}
	all := inspection{s: s, names: names, states: make([]driver.State, len(names)), known: make([]bool, len(names)), alone: make([]bool, len(names))}
	if s.plain() {
		all.inspectPlain(ctx)
	}
	if err := all.inspectTogether(ctx); err != nil {
		return nil, err
	}
	if err := all.inspectAlone(ctx); err != nil {
		return nil, err
	}
	return all.states, nil
}

// An inspection is a call to InspectAll. Concurrent steps write to different elements in its
// slices.
type inspection struct {
	s      *Store
	names  []string
	states []driver.State
	known  []bool // names whose states are set
	alone  []bool // names that need their own call
}

func (a *inspection) atOnce() int {
	if a.s.format.Sharded || a.s.format.Proxy {
		return inspectsAtOnceSharded
	}
	return inspectsAtOnce
}

// inspectTogether inspects the names in batches.
func (a *inspection) inspectTogether(ctx context.Context) error {
	if a.s.format.Redisson {
		for i := range a.alone {
			a.alone[i] = true
		}
		return nil
	}
	batches := a.batches()
	return forEach(ctx, len(batches), a.atOnce(), func(ctx context.Context, i int) error {
		return a.inspectBatch(ctx, batches[i])
	})
}

// batches divides the unknown names into batches for one script call each, as indices.
func (a *inspection) batches() (batches [][]int) {
	byRoute := make(map[wire.Route][]int)
	for i, name := range a.names {
		if a.known[i] {
			continue
		}
		at := a.s.format.Route(name)
		byRoute[at] = append(byRoute[at], i)
	}
	for _, all := range byRoute {
		batches = slices.AppendSeq(batches, slices.Chunk(all, wire.MaxNames))
	}
	return batches
}

// inspectBatch inspects the names at some indices, in one or more calls: the script stops early
// where states are large. A refused call leaves its names to inspectAlone, since a single name may
// be the reason.
func (a *inspection) inspectBatch(ctx context.Context, batch []int) error {
	names := make([]string, len(batch))
	for i, at := range batch {
		names[i] = a.names[at]
	}
	for len(batch) > 0 {
		found, now, err := a.s.requestStates(ctx, names)
		var refusal redisconn.ServerError
		if errors.As(err, &refusal) {
			found = make([]wire.Inspected, len(batch))
			for i := range found {
				found[i].Err = refusal
			}
		} else if err != nil {
			return wrapError("inspect", "", err)
		}
		for i, one := range found {
			at := batch[i]
			a.states[at], a.alone[at] = a.s.recognise(ctx, one.State, now), one.Err != nil
		}
		batch, names = batch[len(found):], names[len(found):]
	}
	return nil
}

// inspectAlone inspects the names that need their own call. Neither a value with another type nor a
// name that the user may not read is an error.
func (a *inspection) inspectAlone(ctx context.Context) error {
	var which []int
	for i, alone := range a.alone {
		if alone {
			which = append(which, i)
		}
	}
	return forEach(ctx, len(which), a.atOnce(), func(ctx context.Context, i int) error {
		at := which[i]
		state, err := a.s.Inspect(ctx, a.names[at])
		var wrong *driver.WrongTypeError
		if errors.As(err, &wrong) {
			state, err = wrong.State, nil
			state.Name = a.names[at] // also for a WrongTypeError without a description
		}
		if forbiddenKey(err) {
			state, err = driver.State{Name: a.names[at], Err: err}, nil
		}
		a.states[at] = state
		return err
	})
}

// forEach calls do for each i below n, with up to atOnce concurrent calls. It returns the first
// error, which ends the context for the other calls.
func forEach(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := min(n, atOnce)
	failed := make(chan error, workers)
	var next atomic.Int64
	var pending sync.WaitGroup
	for range workers {
		pending.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					failed <- err
					cancel()
					return
				}
			}
		})
	}
	pending.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
