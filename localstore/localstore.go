// Package localstore stores locks in a file, for all processes on a machine. It needs no server and
// no daemon.
//
// IT EXCLUDES ON ONE MACHINE ONLY. Machines that share the file over NFS, SMB or a cluster volume
// do not exclude each other, and can corrupt the file. Use redisstore or quorum for several
// machines. Processes that use different files do not exclude each other either; see Path.
// Containers share locks if they share the file's directory, the kernel and its clocks (without
// their own time namespace). Their boot IDs can differ.
//
// The file is an SQLite database, with these companions:
//   - its log and index (-wal, -shm);
//   - the write queue (.turn);
//   - a directory with sockets (.push), which carry notifications between processes; it is in /tmp
//     if its path would be too long;
//   - a file whose locks show which processes are alive (.alive).
//
// Move, copy or delete all these files together, and only while no process uses them. If a file
// is removed or replaced while a lease is held, the lease is lost within a second, except for
// .push. A new process waits, or cannot open the file until all its users end. It finds no lease
// only if all files are removed. docs/cli.md contains a table of such cases.
//
// A process can be killed at any instant. On Linux its leases end at once, unless KeepUntilTTL is set;
// elsewhere they end at their TTL. An unfinished operation has no effect. A machine restart ends
// leases in the same way.
//
// Fences also grow across a restart, and across a power failure if the wall clock keeps running. A
// machine without a battery-backed clock can lose the last commits and the time, and issue a fence
// twice. Two copies of a virtual machine, made while a program ran, are two machines with the same
// locks: a lease held at that time is held in both.
package localstore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// A Store is a driver.Store in a file. It starts no goroutine and no timer: the next operation
// removes expired leases. It is safe for concurrent use.
type Store struct {
	verbs
	tables *tables
	file   *file
}

// verbs are driver.Store's methods.
type verbs = kvstore.Store

var _ driver.Store = (*Store)(nil)

// Open opens the file. It creates the file (mode 0600) and its directories (0700) if they are
// missing. If other processes open the file at the same time, it waits for them, at most for half a
// minute. An error names the file and the remedy.
func Open(path string, options ...Option) (*Store, error) {
	clock, err := bootClock()
	if err != nil {
		return nil, fmt.Errorf("dibs: open %s: %w", path, err)
	}
	s, err := open(path, clock)
	if err != nil {
		return nil, err
	}
	var c config
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	s.file.outlive = c.outlive
	return s, nil
}

// An Option configures a Store opened by Open. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config holds the options' values.
type config struct{ outlive bool }

// KeepUntilTTL keeps leases acquired through this store until their TTL, even if the process ends
// earlier. Use it for a program that acquires a lock, exits, and leaves the lock to another
// program, which can attach by token. By default all leases end with their process.
func KeepUntilTTL() Option { return Option{func(c *config) { c.outlive = true }} }

// LivenessFile returns an open file that marks the owner of this store's leases as alive. The leases end
// as soon as the last process closes it. If a program starts others to work under its leases, they
// should inherit the file, for example by ExtraFiles in os/exec. On systems other than Linux the
// file is nil, and a killed process's leases end at their TTL. The caller should close the file.
func (s *Store) LivenessFile() (*os.File, error) {
	if s.file == nil {
		return nil, errZero
	}
	return s.file.liveness.file()
}

var errZero = fmt.Errorf("%w: the store is a zero value: make it with localstore.Open", driver.ErrInvalid)

func open(path string, c clock) (*Store, error) {
	f, err := openFile(path, c)
	if err != nil {
		return nil, fmt.Errorf("dibs: open %w", err)
	}
	p := &tables{file: f, notifier: newNotifier(f.path)}
	return &Store{verbs: *kvstore.Over(p), tables: p, file: f}, nil
}

// Close closes the file after the current operation; later operations fail. A Watch ends only with
// its context. Leases remain until their TTL or the process's end. The last process to close the
// file waits some milliseconds for the disk. An exiting process need not call Close.
func (s *Store) Close() error {
	if s.file == nil { // of a zero Store
		return nil
	}
	return s.file.close()
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	s.forget(r.Token)
	return s.verbs.Cancel(ctx, r)
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	s.forget(r.Token)
	return s.verbs.Release(ctx, r)
}

// forget removes the queue entry of a token in this process.
func (s *Store) forget(token string) {
	if s.tables != nil { // not of a zero Store
		s.tables.waiters.remove(token)
	}
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := s.verbs.Extend(ctx, requests)
	for i, err := range errs {
		if err == nil {
			continue
		}
		var failed *driver.UnavailableError
		if errors.As(err, &failed) && isMoved(failed.Cause) {
			errs[i] = fmt.Errorf("%w: %w", driver.ErrLost, failed.Cause) // nobody who opens the file now sees the leases
		}
	}
	return errs
}
