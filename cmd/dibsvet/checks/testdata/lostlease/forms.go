package lostlease

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// The forms in which programs handle the error of an acquire.

type logger struct{}

func (logger) Fatal(args ...any)                                          {}
func (logger) ErrorContext(ctx context.Context, text string, args ...any) {}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stock: %w", err)
}

func isBusy(err error) bool { return errors.Is(err, dibs.ErrBusy) }

func codeOf(err error) int {
	if err != nil {
		return 500
	}
	return 200
}

func classify(err error) (retry bool, wait time.Duration) { return isBusy(err), time.Second }

func asType(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if busy, ok := errors.AsType[*dibs.BusyError](err); ok {
		slog.InfoContext(ctx, "held", "by", busy.Holder)
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func asTypeInSwitch(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	switch busy, ok := errors.AsType[*dibs.BusyError](err); {
	case ok:
		return fmt.Errorf("held by %s", busy.Holder)
	case err != nil:
		return err
	}
	return lease.Unlock()
}

func asTypeBefore(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	busy, isBusy := errors.AsType[*dibs.BusyError](err)
	_, isLost := errors.AsType[*dibs.LostError](err)
	switch {
	case isBusy:
		return fmt.Errorf("held by %s", busy.Holder)
	case isLost:
		return nil
	case err != nil:
		return err
	}
	defer lease.Unlock()
	return work(lease.Context())
}

func asTypeNegated(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if _, ok := errors.AsType[*dibs.BusyError](err); !ok {
		if err == nil {
			return lease.Unlock()
		}
		return err
	}
	return nil
}

func asTypeWithAnd(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if busy, ok := errors.AsType[*dibs.BusyError](err); ok && busy.Remaining > time.Minute {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func as(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	var busy *dibs.BusyError
	if errors.As(err, &busy) {
		return nil
	} else if err != nil {
		return err
	}
	return lease.Unlock()
}

func wrapped(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	err = wrap(err)
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func wrappedInIf(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err := wrap(err); err != nil {
		return err
	}
	return lease.Unlock()
}

func wrappedAs(ctx context.Context, m *dibs.Mutex) error {
	lease, lockErr := m.Lock(ctx)
	err := wrap(wrap(lockErr))
	if errors.Is(err, dibs.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func joinedErrors(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		err = errors.Join(dibs.ErrUnavailable, err)
		return err
	}
	return lease.Unlock()
}

func helper(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if isBusy(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func helperNegated(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if !isBusy(err) {
		if err == nil {
			return lease.Unlock()
		}
	}
	return err
}

func helperOfCode(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	switch codeOf(err) {
	case 409, 500:
		return err
	}
	return lease.Unlock()
}

func helperWithCode(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if code := codeOf(err); code != 200 {
		return err
	}
	return lease.Unlock()
}

func helperOfTwo(ctx context.Context, m *dibs.Mutex) error {
	for {
		lease, err := m.TryLock(ctx)
		if retry, wait := classify(err); retry {
			time.Sleep(wait)
			continue
		}
		if err != nil {
			return err
		}
		return lease.Unlock()
	}
}

func typeSwitch(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	switch e := err.(type) {
	case nil:
		return lease.Unlock()
	case *dibs.BusyError:
		return fmt.Errorf("held by %s", e.Holder)
	default:
		return e
	}
}

func typeSwitchOfOne(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	switch err.(type) {
	case *dibs.BusyError, *dibs.LostError:
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func assertion(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	if _, ok := err.(interface{ Timeout() bool }); ok {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func contextError(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func fatal(ctx context.Context, m *dibs.Mutex, l logger) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		l.Fatal(err)
	}
	defer func() {
		if err := lease.Unlock(); err != nil {
			l.ErrorContext(ctx, "unlock", "error", err)
		}
	}()
	return work(lease.Context())
}

func labelled(ctx context.Context, locks *dibs.Client, names []string) error {
next:
	for _, name := range names {
		lease, err := locks.Mutex(name).TryLock(ctx)
		switch {
		case errors.Is(err, dibs.ErrBusy):
			continue next
		case err != nil:
			break next
		}
		if err := errors.Join(work(lease.Context()), lease.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

func inFunction(ctx context.Context, locks *dibs.Client, names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, func() error {
			lease, err := locks.Mutex(name).Lock(ctx)
			if err != nil {
				return wrap(err)
			}
			defer lease.Unlock()
			return work(lease.Context())
		}())
	}
	return err
}

func inGroup(ctx context.Context, m *dibs.Mutex, group *sync.WaitGroup) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	group.Go(func() {
		defer lease.Unlock()
		_ = work(lease.Context())
	})
	return nil
}

func inGoroutine(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	go finish(lease)
	return nil
}

func inMap(ctx context.Context, m *dibs.Mutex, held map[string]*dibs.Lease) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	held["a"] = lease
	return nil
}

func lockAll[L locker](ctx context.Context, all []L) (leases []*dibs.Lease, err error) {
	for _, l := range all {
		lease, err := l.Lock(ctx)
		if err != nil {
			for _, lease := range leases {
				err = errors.Join(err, lease.Unlock())
			}
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

func maybe(ctx context.Context, m *dibs.Mutex, needed bool) error {
	var lease *dibs.Lease
	if needed {
		var err error
		if lease, err = m.Lock(ctx); err != nil {
			return err
		}
		defer lease.Unlock()
	}
	return work(ctx)
}

func unlockIfHeld(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	defer func() {
		if lease != nil {
			_ = lease.Unlock()
		}
	}()
	if err != nil {
		log.Println(err)
		os.Exit(2)
	}
	return work(ctx)
}

// The mistakes that are close to them.

func asTypeAndNoUnlock(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx) // want `the lease lease is not unlocked`
	if _, ok := errors.AsType[*dibs.BusyError](err); ok {
		return nil
	}
	if err != nil {
		return err
	}
	return work(lease.Context())
}

func asTypeWrongBranch(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx) // want `the lease lease is not unlocked`
	if _, ok := errors.AsType[*dibs.BusyError](err); ok {
		return lease.Unlock()
	}
	return err
}

func wrappedAndNoUnlock(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx) // want `the lease lease is not unlocked`
	err = wrap(err)
	if err != nil {
		return err
	}
	return work(lease.Context())
}

// The second error of Join is that of the work, so there is a lease.
func joinedWithWork(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx) // want `the lease lease is not unlocked`
	if err != nil {
		return err
	}
	err = errors.Join(err, work(lease.Context()))
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func helperAndNoUnlock(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx) // want `the lease lease is not unlocked`
	if isBusy(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return work(lease.Context())
}

func typeSwitchAndNoUnlock(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx) // want `the lease lease is not unlocked`
	switch err.(type) {
	case nil:
		return work(lease.Context())
	default:
		return err
	}
}

func labelledAndNoUnlock(ctx context.Context, locks *dibs.Client, names []string) error {
next:
	for _, name := range names {
		lease, err := locks.Mutex(name).TryLock(ctx) // want `the lease lease is not unlocked`
		if err != nil {
			continue next
		}
		for range 3 {
			if work(lease.Context()) != nil {
				continue next
			}
		}
		if err := lease.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

// The condition is about an error before the acquire.

func failedBefore(ctx context.Context, m *dibs.Mutex) error {
	err := work(ctx)
	failed := err != nil
	lease, err := m.Lock(ctx) // want `not unlocked on all paths`
	if err != nil {
		return err
	}
	if failed {
		return nil
	}
	return lease.Unlock()
}

func busyBefore(ctx context.Context, m *dibs.Mutex) error {
	err := work(ctx)
	_, busy := errors.AsType[*dibs.BusyError](err)
	lease, err := m.Lock(ctx) // want `not unlocked on all paths`
	if err != nil {
		return err
	}
	if busy {
		return nil
	}
	return lease.Unlock()
}

func failedAfter(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	failed := err != nil
	if failed {
		return err
	}
	return lease.Unlock()
}
