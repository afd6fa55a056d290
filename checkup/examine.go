package checkup

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// An Examiner is a store that can examine its servers. See Examine.
type Examiner interface {
	Examine(ctx context.Context) (Findings, error)
}

// Examine checks each server of a store for what harms locks: settings that lose leases, states in which
// requests are refused, missing rights, clocks. It also runs a smoke test: on a random name it acquires a
// lock, queues a second request for it, and hands it off. docs/doctor.md lists the findings.
//
// It changes no setting and no lock of others. Its own locks are released before it returns, or expire if
// it is interrupted. On Redis, one fence high-water mark remains on each master.
//
// A check that could not be made is a finding too. The error means that no server could be reached, or
// that the store has invalid options (ErrInvalid). If the store is no Examiner, as memstore, the error
// matches errors.ErrUnsupported. Examine returns soon after ctx ends, and within 30 s.
//
// A store that forwards to another one is examined as that one, if it has a method Unwrap.
func Examine(ctx context.Context, s driver.Store) (Findings, error) {
	for inner := s; ; {
		if driver.IsNil(inner) {
			return nil, fmt.Errorf("%w: examine: the store is nil, or a decorator of nil", driver.ErrInvalid)
		}
		if examiner, ok := inner.(Examiner); ok {
			return examiner.Examine(ctx)
		}
		decorator, ok := inner.(interface{ Unwrap() driver.Store })
		if !ok {
			return nil, &driver.UnsupportedError{Op: "examine", Store: inner, Interface: "checkup.Examiner", Advice: "acquire and release a lock instead"}
		}
		inner = decorator.Unwrap()
	}
}
