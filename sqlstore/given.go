package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// given are the leases of this process that may end, or have ended, with a transaction. The zero
// value is empty. It is safe for concurrent use.
type given struct {
	mu     sync.Mutex
	proofs map[[2]string]any // of the last transaction, by name and token
}

// AddGiven records that a transaction releases a lease. proof is the argument of the statement
// Given, which asks the server whether that transaction was committed.
func (d *Database) AddGiven(name, token string, proof any) {
	d.given.mu.Lock()
	defer d.given.mu.Unlock()
	if d.given.proofs == nil {
		d.given.proofs = make(map[[2]string]any)
	}
	d.given.proofs[[2]string{name, token}] = proof
}

// IsGiven reports whether a transaction released a lease. If this is possible, IsGiven asks the
// server, until a time or, if the time is zero, until ctx's deadline. op is the verb in the error.
func (d *Database) IsGiven(ctx context.Context, op, name, token string, until time.Time) (given bool, err error) {
	proof, ok := d.given.find(name, token)
	if !ok {
		return false, nil
	}
	if until.IsZero() {
		until = driver.DeadlineOf(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := d.One(ctx, true, d.SQL.Given, []any{proof}, &given); err != nil {
		return false, d.Unavailable(op, name, err)
	}
	return given, nil
}

// errGiven means that a lease does not exist because a transaction released it.
var errGiven = errors.New("a transaction has released the lease")

// LossOf returns the error for a lease that is not held.
func (d *Database) LossOf(ctx context.Context, r driver.ExtendRequest) error {
	given, err := d.IsGiven(ctx, "extend", r.Name, r.Token, time.Time{})
	switch {
	case err != nil:
		return err
	case given:
		return d.Unavailable("extend", r.Name, errGiven)
	}
	return driver.ErrLost
}

// ForgetGiven deletes the record of a lease, unless its release failed. It returns failed.
func (d *Database) ForgetGiven(name, token string, failed error) error {
	if failed == nil {
		d.given.remove(name, token)
	}
	return failed
}

func (g *given) find(name, token string) (proof any, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	proof, ok = g.proofs[[2]string{name, token}]
	return proof, ok
}

func (g *given) remove(name, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.proofs, [2]string{name, token})
}

// CheckRelease returns driver.ErrInvalid if a transaction must not release the lease.
func (g Guarded) CheckRelease() error {
	if !g.Reentered {
		return nil
	}
	return fmt.Errorf("%w: release %q in a transaction: a nested call uses the lease, too: release it where it was acquired", driver.ErrInvalid, g.Name)
}
