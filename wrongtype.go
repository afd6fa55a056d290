package dibs

import "github.com/dibslock/dibs/driver"

// A WrongTypeError means that a key holds a value other than a dibs lock: another library's lock,
// or data. Nothing was changed. errors.Is finds ErrWrongType and the cause.
type WrongTypeError struct {
	Op    string // acquire, unlock, extend, …
	Name  string
	State State // State.Foreign describes the value; nil if the store could not read it. State.Holders are a foreign lock's owners
	Cause error // the server's reply

	source *driver.WrongTypeError // from the store, or nil
}

func (e *WrongTypeError) Error() string {
	return (&driver.WrongTypeError{Op: e.Op, Name: e.Name, State: e.State.forText()}).Error()
}

// Unwrap makes errors.Is find ErrWrongType and the cause. errors.As also finds the store's error,
// for packages that build on a store.
func (e *WrongTypeError) Unwrap() []error {
	all := joined(ErrWrongType, e.Cause)
	if e.source != nil {
		all = append(all, e.source)
	}
	return all
}

func wrongTypeError(e *driver.WrongTypeError) *WrongTypeError {
	return &WrongTypeError{Op: e.Op, Name: e.Name, State: stateOf(e.State), Cause: public(e.Cause), source: e}
}

// forText returns a state's parts for a WrongTypeError's message.
func (s State) forText() driver.State {
	var text driver.State
	if f := s.Foreign; f != nil {
		text.Foreign = &driver.Foreign{Key: f.Key, Type: f.Type, Kind: f.Kind, Advice: f.Advice}
	}
	for _, h := range s.Holders {
		one := driver.Holder{Token: string(h.Token), Owner: h.Owner, Remaining: h.Remaining}
		if h.NeverExpires {
			one.Remaining = -1
		}
		text.Holders = append(text.Holders, one)
	}
	return text
}
