package dibsgocron

import (
	"bytes"
	"context"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A Locker forgets each run's lock, even if a task does not use it.
func TestLockerForgets(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	locker := NewLocker(locks, time.Millisecond)
	for _, used := range []bool{false, true} {
		lock, err := locker.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if used && locker.removeOldest(t.Context()) != lock {
			t.Error("the task has not received its lock")
		}
		if err := lock.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
		if len(locker.held) != 0 {
			t.Errorf("%d jobs with a lock after Unlock, want none", len(locker.held))
		}
		time.Sleep(2 * time.Millisecond) // until minHold has passed
	}
}

type generic[T any] struct{}

func (generic[T]) value()    {}
func (*generic[T]) pointer() {}

func function[T any]() func() { return func() {} }

var global = func() {}

func nested() (all []func()) {
	inner := func() func() { return func() {} }
	for range 1 {
		all = append(all, func() {})
	}
	each := func(yield func(func()) bool) { yield(func() {}) }
	for f := range each {
		all = append(all, f, func() {})
	}
	return append(all, func() { inner() }, inner())
}

// The compiler's names must be recognised, and other names must not.
func TestGeneratedName(t *testing.T) {
	for _, f := range append(nested(), global, generic[int]{}.value, new(generic[string]).pointer, new(bytes.Buffer).Reset, function[int](), func() {}) {
		if name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name(); !isGenerated(name) {
			t.Errorf("%q is not recognised", name)
		}
	}
	for _, name := range []string{
		"import-range2024", "morning-fm", "prices[...]", "pkg.func1 cleanup", "report", "orders.sync", "example.com/orders.Sync",
		"radio 97.2-fm", "reports/2024-range1", "orders:[...]", "a.func", "v1.func1x", "main.main.func1()", "func1", "",
	} {
		if isGenerated(name) {
			t.Errorf("%q is taken for a name of the compiler", name)
		}
	}
}
