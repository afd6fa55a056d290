package quorum

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
)

// An inspection is a name's state on a single node. wrong is set if its key holds a value with
// another type there; the state describes the value.
type inspection struct {
	state driver.State
	wrong error
}

// inspect returns a name's state. If the key holds a value with another type on a majority of the
// nodes, the error is a WrongTypeError.
func (s nodes) inspect(ctx context.Context, name string) (driver.State, error) {
	answers, err := queryNodes(ctx, s, "inspect", name, func(ctx context.Context, n driver.Voter) (inspection, error) {
		state, err := n.Inspect(ctx, name)
		var wrong *driver.WrongTypeError
		if errors.As(err, &wrong) {
			return inspection{wrong.State, err}, nil
		}
		return inspection{state, nil}, err
	})
	if err != nil {
		return driver.State{}, err
	}
	on, wrongs := make([]driver.NodeState, len(answers)), []error(nil)
	for i, a := range answers {
		on[i] = driver.NodeState{State: a.value.state, Err: a.err}
		if a.value.wrong == nil {
			continue
		}
		wrongs = append(wrongs, a.value.wrong)
		if on[i].State.Foreign == nil {
			on[i].Err = a.value.wrong // the node could not describe the value
		}
	}
	state := s.merge(name, on)
	if len(wrongs) >= s.majority {
		return driver.State{}, &driver.WrongTypeError{Op: "inspect", Name: name, State: state, Cause: wrongs[0]}
	}
	return state, nil
}

// inspectAll returns the names' states, in their order. It queries each node once.
func (s nodes) inspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	answers, err := queryNodes(ctx, s, "inspect", "", func(ctx context.Context, n driver.Voter) ([]driver.State, error) { return n.InspectAll(ctx, names) })
	if err != nil {
		return nil, err
	}
	states := make([]driver.State, len(names))
	for i, name := range names {
		on := make([]driver.NodeState, len(answers))
		for j, a := range answers {
			on[j].Err = a.err
			if a.err == nil {
				on[j] = driver.NodeState{State: a.value[i], Err: a.value[i].Err}
			}
		}
		states[i] = s.merge(name, on)
		states[i].Err = s.unreadable(on)
	}
	return states, nil
}

// unreadable returns why a name cannot be read on a majority of the nodes, or nil.
func (s nodes) unreadable(on []driver.NodeState) (err error) {
	n := 0
	for _, one := range on {
		if one.State.Err != nil {
			n, err = n+1, one.State.Err
		}
	}
	if n < s.majority {
		return nil
	}
	return err
}

// list returns the names held on a majority of the nodes.
func (s nodes) list(ctx context.Context, pattern string) ([]string, error) {
	lists, err := queryNodes(ctx, s, "list", "", func(ctx context.Context, n driver.Voter) ([]string, error) { return n.List(ctx, pattern) })
	if err != nil {
		return nil, err
	}
	votes := make(map[string]int)
	var names []string
	for _, list := range valuesOf(lists) {
		for _, name := range list {
			if votes[name]++; votes[name] == s.majority {
				names = append(names, name)
			}
		}
	}
	return names, nil
}
