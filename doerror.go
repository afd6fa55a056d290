package dibs

import (
	"errors"
	"fmt"
)

// A DoError is the error returned by Do, Call, Wrap, WrapCall and Once.Do. It reports whether the
// function ran, and separates the function's error from the lock's. errors.Is and errors.As find
// both errors.
//
// If a Do runs inside another Do, errors.As finds the outer DoError first.
type DoError struct {
	Name string // the lock's name; the first for several names; empty without a lock
	Ran  bool   // the function was called
	Work error  // the function's error; nil if it did not run, or succeeded
	Lock error  // if Ran is false: why there is no lease; otherwise: a loss, a failed Yield, a failed release, or nil
}

// Error returns the text of Work, of Lock, or of both. If Work wraps Lock, it returns Work's text.
func (e *DoError) Error() string {
	switch {
	case e.Work == nil && e.Lock == nil:
		return fmt.Sprintf("dibs: work under %q failed", e.Name)
	case e.Work == nil:
		return e.Lock.Error()
	case e.Lock == nil || errors.Is(e.Work, e.Lock): // the function may return its context's cause
		return e.Work.Error()
	}
	return e.Work.Error() + "; " + e.Lock.Error()
}

// Unwrap returns the non-nil errors.
func (e *DoError) Unwrap() []error {
	errs := make([]error, 0, 2)
	for _, err := range [...]error{e.Work, e.Lock} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// errNotRun returns the error for a Do whose function did not run.
func errNotRun(name string, why error) error { return &DoError{Name: name, Lock: why} }

// errAfterRun returns the error for a Do whose function ran, or nil.
func errAfterRun(name string, work, lock error) error {
	if work == nil && lock == nil {
		return nil
	}
	return &DoError{Name: name, Ran: true, Work: work, Lock: lock}
}
