package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// Reasons why a node did not answer.
var (
	ErrNoAnswer      = errors.New("no answer yet")
	errDuplicateNode = errors.New("another node has the same store ID: one server is configured twice")
	errUncertainVote = errors.New("its answer is not counted: an earlier release got no answer and may still arrive")
	errNoLease       = errors.New("it does not have the lease")
	errNoVote        = errors.New("it has not yet voted for the lease")
	errRepaired      = errors.New("it did not have the lease and was requested to vote again")
	errUnderWay      = errors.New("it did not have the lease while another operation on it was pending")
	errOtherMode     = errors.New("it has not confirmed that the lease is exclusive")
	errResizePending = errors.New("an earlier resize to another weight got no answer and may still arrive")
)

// unanswered reports whether err means "no answer": the node may still answer later.
func unanswered(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && !u.Refused
}

// Unavailable returns an error with the number of nodes that answered, and the reason for each
// other node. errs contains an error for each node, nil if it answered.
func Unavailable(op, name string, errs []error) error {
	u := &driver.UnavailableError{Op: op, Name: name, Refused: true}
	var causes []error
	for i, err := range errs {
		switch {
		case err == nil:
			u.Refused = false
			continue
		case errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrWrongType):
			return err
		}
		var of *driver.UnavailableError
		if errors.As(err, &of) {
			u.Refused = u.Refused && of.Refused
			err = of.Cause
		} else {
			u.Refused = false
		}
		causes = append(causes, fmt.Errorf("node %d: %w", i, err))
	}
	u.Cause = fmt.Errorf("%d of %d nodes answered, not enough for a majority: %w", len(errs)-len(causes), len(errs), errorList(causes))
	return u
}

// An errorList formats several errors on a single line.
type errorList []error

func (r errorList) Error() string {
	var all []string
	for _, err := range r {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (r errorList) Unwrap() []error { return r }
