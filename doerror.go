package dibs

import (
	"errors"
	"fmt"
)

// A DoError is the error of Do, Call, Wrap, WrapCall and Once.Do. It says whether the function
// ran, and separates its error from that of the lock. errors.Is and errors.As find both.
//
// If one Do runs inside another, errors.As finds the DoError of the outer one first.
type DoError struct {
	Name string // of the lock; of several names the first; empty if there is no lock
	Ran  bool   // the function was called
	Work error  // of the function; nil if it did not run, or succeeded
	Lock error  // if Ran is false, why there is no lease; otherwise a loss, a failed Yield or a failed release; or nil
}

// Error returns the text of Work, of Lock, or of both. A Work that wraps Lock has the text of both.
func (e *DoError) Error() string {
	switch {
	case e.Work == nil && e.Lock == nil:
		return fmt.Sprintf("dibs: work under %q failed", e.Name)
	case e.Work == nil:
		return e.Lock.Error()
	case e.Lock == nil || errors.Is(e.Work, e.Lock): // the function may return the cause of its context
		return e.Work.Error()
	}
	return e.Work.Error() + "; " + e.Lock.Error()
}

// Unwrap returns the errors that are not nil.
func (e *DoError) Unwrap() []error {
	errs := make([]error, 0, 2)
	for _, err := range [...]error{e.Work, e.Lock} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// errNotRun returns the error of a Do that has not called its function.
func errNotRun(name string, why error) error { return &DoError{Name: name, Lock: why} }

// errAfterRun returns the error of a Do that has called its function, or nil.
func errAfterRun(name string, work, lock error) error {
	if work == nil && lock == nil {
		return nil
	}
	return &DoError{Name: name, Ran: true, Work: work, Lock: lock}
}
