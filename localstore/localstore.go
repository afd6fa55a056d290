// Package localstore stores locks in one file, for all processes of one machine. It needs
// no server and no daemon.
//
// IT EXCLUDES ON ONE MACHINE ONLY. Machines that share the file over NFS, SMB or a
// cluster volume do not exclude each other, and may corrupt the file. Use redisstore or
// quorum for several machines. Processes that use different files do not exclude each
// other either; see Path. Containers share locks if they share the file's directory, the
// kernel and its clocks (no time namespace of their own). They may have different boot
// IDs.
//
// The file is an SQLite database. It has these companions:
//   - its log and index (-wal, -shm);
//   - the queue of writers (.turn);
//   - a directory of sockets (.push), which carry notifications between processes; it is
//     in /tmp if its path would be too long;
//   - a file whose locks show which processes are alive (.alive).
//
// Move, copy or delete all of them together, and only while no process uses them. If one of them is
// removed or replaced while a lease is held, the lease is lost within a second. Other processes
// cannot open the file until those that use it have ended. Only if all files are removed does a
// new process find no lease, in that second. docs/cli.md has a table of such cases.
//
// A process may be killed at any instant. On Linux its leases end at once, unless Outlive
// is set; elsewhere they end at their TTL. An operation that it did not finish has no
// effect. A restart of the machine ends leases in the same way.
//
// Fences also grow across a restart, and across a loss of power if the wall clock keeps
// running. A machine without a battery-backed clock may lose the last commits and the
// time, and issue a fence twice. Two copies of a virtual machine made while a program ran
// are two machines with the same locks: a lease held then is held in both.
package localstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A Store is a driver.Store in a file. It has no goroutine and no timer: the next
// operation removes expired leases. It is safe for concurrent use.
type Store struct {
	file     *file
	notifier notifier
	waiters  waitTable
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.FenceReserver = (*Store)(nil)
)

// Open opens the file. It creates the file (mode 0600) and its directories (0700) if they
// do not exist. It waits for other processes that open the file at the same time, for half a
// minute at most. An error names the file and says what to do.
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

// An Option configures a Store that Open opens. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config is what options change.
type config struct{ outlive bool }

// Outlive keeps leases acquired through this store until their TTL, even if the process
// ends earlier. Use it for a program that acquires a lock, exits, and leaves the lock to
// another program, which attaches by token. By default all leases end with their process.
func Outlive() Option { return Option{func(c *config) { c.outlive = true }} }

// Alive returns an open file that marks the owner of this store's leases as alive. The
// leases end as soon as no process has it open. A program that starts others which work
// under its leases lets them inherit the file, for example by ExtraFiles of os/exec. On
// systems other than Linux the file is nil, and the leases of a killed process end at
// their TTL. The caller closes the file.
func (s *Store) Alive() (*os.File, error) { return s.file.liveness.file() }

func open(path string, c clock) (*Store, error) {
	f, err := openFile(path, c)
	if err != nil {
		return nil, fmt.Errorf("dibs: open %w", err)
	}
	return &Store{file: f, notifier: newNotifier(f.path)}, nil
}

// Close closes the file after the current operation; later operations fail. A Watch ends
// only with its context. Leases remain until their TTL or the end of the process. The
// last process to close the file waits some milliseconds for the disk. A process that
// exits need not call Close.
func (s *Store) Close() error { return s.file.close() }

// A fileOp is one operation on the file.
type fileOp struct {
	op    string
	name  string
	until time.Time
	names []string // names whose entries are read; nil: all
}

// Groups implements driver.Store. All names form one group.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// Acquire implements dibs.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (answer driver.AcquireReply, err error) {
	if err := driver.CheckAcquire(c); err != nil {
		return driver.AcquireReply{}, err
	}
	t := fileOp{"acquire", c.Name, c.Until, c.Names()}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (notifications []locktable.Notification, err error) {
		answer, notifications = l.Acquire(c, now)
		s.waiters.record(c, answer, l)
		return notifications, nil
	})
	if err != nil {
		return driver.AcquireReply{}, err
	}
	return answer, nil
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (answer driver.AcquireReply, err error) {
	if err := driver.CheckAcquire(c); err != nil {
		return driver.AcquireReply{}, err
	}
	t := fileOp{"resize", c.Name, c.Until, []string{c.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (notifications []locktable.Notification, err error) {
		answer, notifications = l.Resize(c, nil, now)
		return notifications, nil
	})
	if err != nil {
		return driver.AcquireReply{}, err
	}
	return answer, nil
}

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (reply driver.FenceReply, err error) {
	if err := driver.CheckFences(r); err != nil {
		return reply, err
	}
	t := fileOp{"reserve fences", r.Name, time.Time{}, []string{r.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (notifications []locktable.Notification, err error) {
		reply, notifications = l.ReserveFences(r, now)
		return notifications, nil
	})
	if err != nil {
		return driver.FenceReply{}, err
	}
	return reply, nil
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	s.waiters.remove(c.Token)
	t := fileOp{"cancel", c.Name, c.Until, c.Names()}
	return s.change(ctx, t, func(l *locktable.Table, now locktable.Now) ([]locktable.Notification, error) {
		return l.Cancel(c, nil, now), nil
	})
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	t := fileOp{"revoke", r.Name, time.Time{}, []string{r.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (notifications []locktable.Notification, err error) {
		revoked, notifications = l.Revoke(r, now)
		return notifications, nil
	})
	return revoked && err == nil, err
}

// Release implements dibs.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	s.waiters.remove(r.Token)
	t := fileOp{"release", r.Name, r.Until, []string{r.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (notifications []locktable.Notification, err error) {
		held, notifications = l.Release(r, nil, now)
		return notifications, nil
	})
	return held && err == nil, err
}

// Extend implements dibs.Store.
func (s *Store) Extend(ctx context.Context, holds []driver.ExtendRequest) (errs []error) {
	t := fileOp{op: "extend", names: []string{}}
	for _, h := range holds {
		t.names = append(t.names, h.Name)
	}
	err := s.change(ctx, t, func(l *locktable.Table, now locktable.Now) ([]locktable.Notification, error) {
		errs = l.Extend(holds, now)
		return nil, nil
	})
	if isMoved(err) {
		err = fmt.Errorf("%w: %w", driver.ErrLost, err) // nobody who opens the file now sees the leases
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	return errs
}

// NotifyWanted implements driver.Store.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	t := fileOp{"notify wanted", r.Name, time.Time{}, []string{r.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (notifications []locktable.Notification, err error) {
		wanted, notifications = l.NotifyWanted(r, now)
		return notifications, nil
	})
	return wanted && err == nil, err
}

// Inspect implements dibs.Store.
func (s *Store) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	t := fileOp{"inspect", name, time.Time{}, []string{name}}
	err = s.read(ctx, t, func(l *locktable.Table, now locktable.Now) error {
		state = l.Inspect(name, now)
		return nil
	})
	return state, err
}

// InspectAll implements driver.Store.
func (s *Store) InspectAll(ctx context.Context, names []string) (states []driver.State, err error) {
	if err := locktable.CheckNames(ctx, names); err != nil || len(names) == 0 {
		return nil, err
	}
	err = s.read(ctx, fileOp{"inspect", names[0], time.Time{}, names}, func(l *locktable.Table, now locktable.Now) error {
		states = l.InspectAll(names, now)
		return nil
	})
	return states, err
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	err = s.read(ctx, fileOp{op: "list"}, func(l *locktable.Table, now locktable.Now) (err error) {
		names, err = l.List(pattern, now)
		return err
	})
	return names, err
}

// change runs an operation, saves what it changed, and then sends its notifications.
func (s *Store) change(ctx context.Context, t fileOp, op func(*locktable.Table, locktable.Now) ([]locktable.Notification, error)) error {
	if err := locktable.ContextEnded(ctx, t.op, t.name); err != nil {
		return err
	}
	notifications, err := s.file.change(ctx, deadlineOf(ctx, t.until), t.names, op)
	if err != nil {
		return s.wrapError(t, err)
	}
	s.notifier.send(notifications)
	return nil
}

func (s *Store) read(ctx context.Context, t fileOp, op func(*locktable.Table, locktable.Now) error) error {
	if err := locktable.ContextEnded(ctx, t.op, t.name); err != nil {
		return err
	}
	if err := s.file.read(ctx, deadlineOf(ctx, t.until), t.names, op); err != nil {
		return s.wrapError(t, err)
	}
	return nil
}

// wrapError returns err as an UnavailableError, unless the request itself was invalid.
func (s *Store) wrapError(t fileOp, err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return err
	}
	var f *fileError
	refused := errors.As(err, &f) && f.refused
	return &driver.UnavailableError{Op: t.op, Name: t.name, Cause: err, Refused: refused}
}

// deadlineOf returns when an operation must end: the earlier of until and the context's
// deadline, or driver.OperationTimeout from now.
func deadlineOf(ctx context.Context, until time.Time) time.Time {
	end := driver.DeadlineOf(ctx)
	if _, bounded := ctx.Deadline(); !until.IsZero() && (!bounded || until.Before(end)) {
		return until
	}
	return end
}
