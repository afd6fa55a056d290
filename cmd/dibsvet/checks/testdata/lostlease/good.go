package lostlease

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func deferred(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return work(lease.Context())
}

func joined(ctx context.Context, m *dibs.Mutex) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock()) }()
	return work(lease.Context())
}

func errorIsNil(ctx context.Context, m *dibs.Mutex) bool {
	lease, err := m.TryLock(ctx)
	if err == nil {
		return lease.Unlock() == nil
	}
	return false
}

func inIf(ctx context.Context, m *dibs.Mutex) error {
	if lease, err := m.TryLock(ctx); err == nil {
		defer lease.Unlock()
	} else if !errors.Is(err, dibs.ErrBusy) {
		return err
	}
	return work(ctx)
}

func inSwitch(ctx context.Context, m *dibs.Mutex) (bool, error) {
	lease, err := m.TryLock(ctx)
	switch {
	case errors.Is(err, dibs.ErrBusy):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, lease.Unlock()
}

func tagSwitch(ctx context.Context, m *dibs.Mutex) (bool, error) {
	switch lease, err := m.TryLock(ctx); err {
	case nil:
		return true, lease.Unlock()
	default:
		return false, err
	}
}

func named(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.TryLock(ctx)
	busy := errors.Is(err, dibs.ErrBusy)
	if busy {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock()
}

func bothConditions(ctx context.Context, m *dibs.Mutex, quiet bool) error {
	lease, err := m.TryLock(ctx)
	if err != nil && quiet {
		return nil
	}
	if quiet || err != nil {
		if err == nil {
			return lease.Unlock()
		}
		return err
	}
	return lease.Unlock()
}

func nilLease(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if lease == nil {
		return err
	}
	return lease.Unlock()
}

func inLoopUnlocked(ctx context.Context, locks *dibs.Client, names []string) error {
	for _, name := range names {
		lease, err := locks.Mutex(name).Lock(ctx)
		if err != nil {
			return err
		}
		err = work(lease.Context())
		if err := errors.Join(err, lease.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

func retried(ctx context.Context, m *dibs.Mutex) error {
	for {
		lease, err := m.TryLock(ctx)
		if err != nil {
			continue
		}
		return lease.Unlock()
	}
}

func returned(ctx context.Context, m *dibs.Mutex) (*dibs.Lease, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func returnedCall(ctx context.Context, m *dibs.Mutex) (*dibs.Lease, error) { return m.Lock(ctx) }

func namedResult(ctx context.Context, m *dibs.Mutex) (lease *dibs.Lease, err error) {
	lease, err = m.Lock(ctx)
	return
}

type holder struct{ lease *dibs.Lease }

func (h *holder) stored(ctx context.Context, m *dibs.Mutex) (err error) {
	h.lease, err = m.Lock(ctx)
	return err
}

func (h *holder) storedLater(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	h.lease = lease
	return nil
}

func collected(ctx context.Context, m *dibs.Mutex, leases []*dibs.Lease) ([]*dibs.Lease, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return leases, err
	}
	return append(leases, lease), nil
}

func inStruct(ctx context.Context, m *dibs.Mutex) (*holder, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return &holder{lease: lease}, nil
}

func passedOn(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return finish(lease)
}

func finish(lease *dibs.Lease) error { return lease.Unlock() }

func sent(ctx context.Context, m *dibs.Mutex, to chan<- *dibs.Lease) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	to <- lease
	return nil
}

func captured(ctx context.Context, m *dibs.Mutex) (func(), error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return func() { _ = lease.Unlock() }, nil
}

func unlockValue(ctx context.Context, m *dibs.Mutex) (func() error, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func detached(ctx context.Context, m *dibs.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Detach()
}

func outerVariable(ctx context.Context, m *dibs.Mutex) (err error) {
	var lease *dibs.Lease
	acquire := func() { lease, err = m.Lock(ctx) }
	acquire()
	if err != nil {
		return err
	}
	return lease.Unlock()
}

// The end of the process, and a panic, are no returns.
func exits(ctx context.Context, m *dibs.Mutex, bad bool) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if bad {
		os.Exit(1)
	}
	if lease.Fence() == 0 {
		panic("no fence")
	}
	return lease.Unlock()
}

func exitsOrUnlocks(ctx context.Context, m *dibs.Mutex, bad bool) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return
	}
	switch {
	case bad:
		os.Exit(1)
	default:
		_ = lease.Unlock()
	}
}

// Close releases all leases.
func closes(ctx context.Context) error {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	lease, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	return work(lease.Context())
}

// An attached lease has another owner.
func attached(ctx context.Context, locks *dibs.Client) error {
	lease, err := locks.Attach(ctx, dibs.NewHandle("a", "token"))
	if err != nil {
		return err
	}
	return lease.Err()
}

// It gives out a lease that it keeps.
func (h *holder) Current() (*dibs.Lease, error) { return h.lease, nil }

func current(h *holder) error {
	lease, err := h.Current()
	if err != nil {
		return err
	}
	return lease.Err()
}

// A package has no paths.
var kept, keptErr = dibs.New(memstore.New()).Mutex("a").TryLock(context.Background())
