// Package dibsgoose lets one of many replicas run goose migrations.
//
// goose locks by PostgreSQL advisory locks, or by a table in PostgreSQL or MySQL. A
// [Locker] locks on a dibs store instead: for SQLite and other databases, or where a
// connection pooler breaks advisory locks.
//
//	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations,
//		goose.WithLocker(dibsgoose.New(locks, "migrations:orders")))
//
// The first replica runs the migrations. The others wait, and then find nothing to do. The
// Client renews the lease, so a migration can take longer than the TTL. If no migration is
// pending, Provider.Up does not lock.
//
// # Loss of the lease
//
// goose gives its migrations the caller's context, and a Locker cannot end it. If the lease
// is lost, the migrations continue, while another replica may begin them. The Provider
// returns ErrLost after the last migration.
//
// If your own code calls the Provider, use no Locker, and call the Provider in Do. The loss
// then ends the context, and with it the running statement. A migration in a transaction is
// rolled back:
//
//	err := locks.Mutex("migrations:orders").Do(ctx, func(ctx context.Context) error {
//		_, err := provider.Up(ctx)
//		return err
//	})
//
// The two ways exclude each other, so replicas can use either. docs/adapters.md explains more.
//
// # Versions
//
// Tested with v3.26.0 to v3.29.0 of github.com/pressly/goose/v3.
package dibsgoose

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/pressly/goose/v3/lock"
)

// A Locker is a goose lock on a dibs store. It is safe for concurrent use, and several Providers
// can share it.
type Locker struct {
	mutex *dibs.Mutex
	held  chan *dibs.Lease // the lease between Lock and Unlock
}

var _ lock.Locker = (*Locker)(nil)

// New returns a name's Locker. It does no I/O; a bad name or option makes Lock return ErrInvalid.
// All replicas should use the same name. Each database needs its own name, and so does each version
// table if there are several in a database.
//
// The TTL is how long the others wait after a crash during a migration. Wait limits how long a
// replica waits for another. Without Wait, Lock waits until the context ends.
func New(locks *dibs.Client, name string, options ...dibs.Option) *Locker {
	return &Locker{mutex: locks.Mutex(name, options...), held: make(chan *dibs.Lease, 1)}
}

// Lock acquires the lock. The database is not used. Errors and limits are the same as for
// dibs.Mutex.Lock: ErrBusy if the waiting is over, with ctx's cause if ctx ended it.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.mutex.Lock(ctx)
	if err != nil {
		return err
	}
	// Normally there is room at once. If the previous lease was lost, its migrations may still run
	// in this process.
	select {
	case l.held <- lease:
		return nil
	case <-lease.Context().Done():
		return lease.Unlock()
	case <-ctx.Done():
		return errors.Join(&dibs.BusyError{Name: lease.Name(), Cause: context.Cause(ctx)}, lease.Unlock())
	}
}

// Unlock releases the lock. The database and the context are not used: Unlock sets its own time
// limit. It returns ErrLost if the lease was lost while the migrations ran, and ErrUnavailable if
// only the release failed; the lock then expires after the TTL. Without an earlier Lock it returns
// ErrInvalid.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	select {
	case lease := <-l.held:
		return lease.Unlock()
	default:
		return fmt.Errorf("%w: unlock of a Locker that is not locked", dibs.ErrInvalid)
	}
}
