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

// Examine checks each of a store's servers for problems with locks: settings that lose leases,
// states in which requests are refused, missing rights, clocks. It also runs a smoke test: on a
// random name it acquires a lock, queues a second request, and hands the lock off. docs/doctor.md
// lists the findings.
//
// Examine changes neither settings nor others' locks. It releases its own locks before it returns,
// or lets them expire after an interruption. On Redis, a fence high-water mark remains on each
// master.
//
// A check that could not run is also a finding. An error means that no server could be reached, or
// that the store's options are invalid (ErrInvalid). If the store is no Examiner, such as memstore,
// the error matches errors.ErrUnsupported. Examine returns soon after ctx ends, and within 30 s.
//
// Examine examines the inner store of a decorator with a method Unwrap.
func Examine(ctx context.Context, s driver.Store) (Findings, error) {
	if driver.IsNil(s) {
		return nil, fmt.Errorf("%w: examine: the store is nil", driver.ErrInvalid)
	}
	for inner := s; ; {
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
