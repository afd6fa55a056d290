package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// nodes are a quorum's stores.
type nodes struct {
	all      []driver.Voter
	majority int
}

// An answer is a node's reply to a query. Its error is core.ErrNoAnswer if the node did not reply
// in time.
type answer[T any] struct {
	value T
	err   error
}

// queryNodes calls query for all nodes and returns each node's answer. It returns an error unless a
// majority answered. It does not wait for the remaining nodes much longer.
func queryNodes[T any](ctx context.Context, s nodes, op, name string, query func(context.Context, driver.Voter) (T, error)) ([]answer[T], error) {
	type reply struct {
		node int
		answer[T]
	}
	replies := make(chan reply, len(s.all))
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	answers, answered := make([]answer[T], len(s.all)), 0
	for i, n := range s.all {
		answers[i].err = core.ErrNoAnswer
		go func() {
			v, err := query(ctx, n)
			replies <- reply{i, answer[T]{v, err}}
		}()
	}
	var stragglers <-chan time.Time
	for range s.all {
		select {
		case r := <-replies:
			if answers[r.node] = r.answer; r.err == nil {
				answered++
			}
		case <-stragglers:
			return answers, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("%w", core.Unavailable(op, name, errorsOf(answers)))
		}
		if answered == s.majority {
			stragglers = time.After(core.StragglerTimeout)
		}
	}
	if answered < s.majority {
		return nil, core.Unavailable(op, name, errorsOf(answers))
	}
	return answers, nil
}

func errorsOf[T any](answers []answer[T]) []error {
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.err
	}
	return errs
}

// valuesOf returns the values from the nodes that answered.
func valuesOf[T any](answers []answer[T]) (values []T) {
	for _, a := range answers {
		if a.err == nil {
			values = append(values, a.value)
		}
	}
	return values
}
