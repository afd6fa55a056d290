package isbusy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dibslock/dibs"
)

// The forms in which programs compare errors.

func inLoop(try func() error) (err error) {
	for err = try(); err == dibs.ErrBusy; err = try() { // want `errors of dibs are wrapped, so == does not find them`
	}
	return err
}

func labelled(try func() error) error {
retry:
	for range 3 {
		switch err := try(); {
		case err == dibs.ErrBusy: // want `errors of dibs are wrapped, so == does not find them`
			continue retry
		case err != nil && err != dibs.ErrReentrant: // want `errors of dibs are wrapped, so != does not find them`
			return err
		}
	}
	return nil
}

func negated(err error) bool { return !(err == dibs.ErrLost) } // want `errors of dibs are wrapped`

func result(ctx context.Context, m *dibs.Mutex) bool {
	_, err := m.TryLock(ctx)
	busy := err == dibs.ErrBusy // want `errors of dibs are wrapped`
	return busy
}

type reply struct{ err error }

func field(r *reply) bool { return r.err == dibs.ErrInvalid } // want `use errors.Is\(r.err, dibs.ErrInvalid\)`

func pointer(err *error) bool { return *err == dibs.ErrClosed } // want `use errors.Is\(\*err, dibs.ErrClosed\)`

func unwrapped(err error) bool { return errors.Unwrap(err) == dibs.ErrBusy } // want `errors of dibs are wrapped`

func generic[E error](err E) bool { return error(err) == dibs.ErrBusy } // want `errors of dibs are wrapped`

func inClosure(errs <-chan error) func() bool {
	return func() bool { return <-errs == dibs.ErrUnavailable } // want `errors of dibs are wrapped`
}

func (r *reply) status() int {
	switch r.err {
	case dibs.ErrBusy: // want `so this case does not find them`
		return http.StatusConflict
	}
	return http.StatusOK
}

// A return assigns to a named result.
func namedResult(try func() error, first bool) (err error) {
	defer func() {
		if err == dibs.ErrBusy { // want `errors of dibs are wrapped`
			err = nil
		}
	}()
	if first {
		err = dibs.ErrBusy
		return err
	}
	return try()
}

func namedResults(try func() (int, error), first bool) (n int, err error) {
	if first {
		err = dibs.ErrBusy
	}
	defer func() {
		if err == dibs.ErrBusy { // want `errors of dibs are wrapped`
			n = 1
		}
	}()
	return try()
}

// The forms that are correct.

func sentinelResult(first bool) (err error) {
	defer func() {
		if err == dibs.ErrBusy {
			err = nil
		}
	}()
	if first {
		return dibs.ErrBusy
	}
	return err
}

func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, dibs.ErrBusy):
		return http.StatusConflict
	case errors.Is(err, context.Canceled), errors.Is(err, dibs.ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func holderOf(err error) string {
	if busy, ok := errors.AsType[*dibs.BusyError](err); ok {
		return string(busy.Holder)
	}
	return ""
}

func holderByAs(err error) string {
	busy := new(dibs.BusyError)
	if errors.As(err, &busy) {
		return string(busy.Holder)
	}
	return ""
}

// recover returns any value.
func recovered(f func()) (lost bool) {
	defer func() {
		r := recover()
		_, lost = r.(*dibs.LostError)
		lost = lost || r == dibs.ErrLost
	}()
	f()
	return lost
}

func argument(args ...any) string {
	for _, a := range args {
		switch a := a.(type) {
		case *dibs.BusyError:
			return string(a.Holder)
		case error:
			return a.Error()
		}
	}
	return ""
}

// The wanted error of a table is no error of a call.
func table(try func() error) error {
	for _, c := range []struct {
		name string
		want error
	}{{"busy", dibs.ErrBusy}, {"free", nil}, {name: "lost", want: dibs.ErrLost}} {
		if err := try(); !errors.Is(err, c.want) && c.want != dibs.ErrLost {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func wanted(first bool) bool {
	want := dibs.ErrBusy
	if first {
		want = nil
	}
	return want == dibs.ErrBusy
}

type joined []error

func (j joined) Error() string { return "joined" }

func (j joined) Is(target error) bool {
	switch target {
	case dibs.ErrBusy, dibs.ErrLost:
		return true
	}
	for _, err := range j {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
