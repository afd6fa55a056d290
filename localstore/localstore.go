// Package localstore keeps claims in one file, for all processes of one machine: locks
// for scripts and programs with nothing installed and nothing running.
//
// IT EXCLUDES ON THIS MACHINE ONLY. Two machines that share the file, over NFS, SMB or a
// cluster's volume, do not exclude each other, and may damage it: what must not happen
// twice on two machines needs redisstore or quorum. Nor do two processes exclude each
// other that use two files; see Path. Containers share a lock if they share the directory of
// the file, the kernel and its clocks (no time namespace of their own); a boot id of their own
// does not matter.
//
// The file is an SQLite database. Next to it lie its log and index (-wal, -shm), the queue
// of those who write (.turn), and a directory of sockets (.push) by which processes tell
// each other that a lock was handed on; that one is in /tmp if its path would be too long.
// A file of locks shows which processes live (.alive). All of them belong together: move, copy
// or delete them only while nobody uses them.
//
// A process may be killed at any instant: what it held and did not ask to outlive it is free
// at once on Linux, and else when its TTL is over; what it did not finish never was. A restart
// of the machine ends leases in the same way.
//
// Fences grow across that, and after a loss of power if the wall clock goes on: a machine
// without a clock of its own may lose the last commits and the time, and give out a fence
// twice. Two copies of one virtual machine that were made while a program ran are two machines
// with the same locks: a lease that was held then is held in both.
package localstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A Store is a dibs.Store in a file. It has no goroutine and no timer: what has expired
// is found by whoever looks next. It is safe for concurrent use.
type Store struct {
	file  *file
	post  post
	waits waits
}

var _ driver.Store = (*Store)(nil)

// Open opens the file, and makes it (0600) and its directories (0700) if they are not
// there. It waits for other processes that open it at the same time, for seconds at most.
// An error names the file and says what to do.
func Open(path string, options ...Option) (*Store, error) {
	clock, err := bootClock()
	if err != nil {
		return nil, fmt.Errorf("dibs: open %s: %w", path, err)
	}
	s, err := open(path, clock)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		o(s)
	}
	return s, nil
}

// An Option adjusts a Store.
type Option func(*Store)

// Outlive lets what this store takes last until its TTL, also after the end of the process:
// for a program that takes a lock, ends, and leaves it to another one, which attaches to it by
// its token. The default is that everything is free at once when its process has ended.
func Outlive() Option { return func(s *Store) { s.file.outlive = true } }

// Alive returns an open file that shows to others that the owner of this store's leases lives:
// they end at once when no process has it open any more. A program that starts others which
// work under its leases lets them inherit it, as by ExtraFiles of os/exec. It is nil on systems
// other than Linux, where leases of a killed process end with their TTL. The caller closes it.
func (s *Store) Alive() (*os.File, error) { return s.file.life.file() }

func open(path string, c clock) (*Store, error) {
	f, err := openFile(path, c)
	if err != nil {
		return nil, fmt.Errorf("dibs: open %w", err)
	}
	return &Store{file: f, post: newPost(f.path)}, nil
}

// Close closes the file, after the operation that is under way; those that come later are
// refused. A Watch ends with its context, as before. What is held stays held, until its TTL or
// the end of the process. The last
// process to close the file waits for the disk, some milliseconds; one that ends need not
// close it.
func (s *Store) Close() error { return s.file.close() }

// operation bounds what has no deadline of its own.
const operation = time.Second

// A task is one operation on its way through the file.
type task struct {
	op    string
	name  string
	until time.Time
	names []string // whose entries are concerned; nil: all
}

// Groups implements dibs.Store: this one can take any names in one step.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// Acquire implements dibs.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (answer driver.AcquireReply, err error) {
	if err := check(c); err != nil {
		return driver.AcquireReply{}, err
	}
	t := task{"acquire", c.Name, c.Until, locktable.Names(c)}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification, err error) {
		answer, mail, err = l.Acquire(c, now)
		s.waits.note(c, answer, l)
		return mail, err
	})
	if err != nil {
		return driver.AcquireReply{}, err
	}
	return answer, nil
}

// Reweigh implements dibs.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (answer driver.AcquireReply, err error) {
	if err := check(c); err != nil {
		return driver.AcquireReply{}, err
	}
	t := task{"reweigh", c.Name, c.Until, []string{c.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification, err error) {
		answer, mail = l.Resize(c, now)
		return mail, nil
	})
	if err != nil {
		return driver.AcquireReply{}, err
	}
	return answer, nil
}

// check refuses what cannot be served, or be written down and read again.
func check(c driver.AcquireRequest) error {
	if c.Token == "" || !utf8.ValidString(c.Token) || !utf8.ValidString(c.Client) {
		return fmt.Errorf("%w: claim on %q: its token is empty, or it or the client is not UTF-8", driver.ErrInvalid, c.Name)
	}
	return errors.Join(locktable.CheckRequest(c), noBallot(c.Vote))
}

func noBallot(b *driver.VoteRequest) error {
	if b == nil {
		return nil
	}
	return fmt.Errorf("%w: a file of one machine is no node of a quorum", driver.ErrInvalid)
}

// Abandon implements dibs.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	if err := noBallot(c.Vote); err != nil {
		return err
	}
	s.waits.forget(c.Token)
	t := task{"abandon", c.Name, c.Until, locktable.Names(c)}
	return s.change(ctx, t, func(l *locktable.Table, now locktable.Now) ([]locktable.Notification, error) {
		return l.Cancel(c, now), nil
	})
}

// Break implements dibs.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64) (broken bool, err error) {
	if err := driver.CheckName(name); err != nil {
		return false, err
	}
	t := task{"break", name, time.Time{}, []string{name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification, err error) {
		broken, mail = l.Revoke(name, fence, now)
		return mail, nil
	})
	return broken && err == nil, err
}

// Release implements dibs.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	if err := noBallot(r.Vote); err != nil {
		return false, err
	}
	s.waits.forget(r.Token)
	t := task{"release", r.Name, r.Until, []string{r.Name}}
	err = s.change(ctx, t, func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification, err error) {
		held, mail = l.Release(r, now)
		return mail, nil
	})
	return held && err == nil, err
}

// Extend implements dibs.Store.
func (s *Store) Extend(ctx context.Context, holds []driver.ExtendRequest) (errs []error) {
	t := task{op: "extend", names: []string{}}
	for _, h := range holds {
		t.names = append(t.names, h.Name)
	}
	err := s.change(ctx, t, func(l *locktable.Table, now locktable.Now) ([]locktable.Notification, error) {
		errs = l.Extend(holds, now)
		return nil, nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	return errs
}

// Inspect implements dibs.Store.
func (s *Store) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	t := task{"inspect", name, time.Time{}, []string{name}}
	err = s.read(ctx, t, func(l *locktable.Table, now locktable.Now) error {
		state = l.Inspect(name, now)
		return nil
	})
	return state, err
}

// List implements dibs.Store.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	err = s.read(ctx, task{op: "list"}, func(l *locktable.Table, now locktable.Now) (err error) {
		names, err = l.List(pattern, now)
		return err
	})
	return names, err
}

// change runs an operation, keeps what it changed, and then sends its messages.
func (s *Store) change(ctx context.Context, t task, op func(*locktable.Table, locktable.Now) ([]locktable.Notification, error)) error {
	if err := locktable.ContextEnded(ctx, t.op, t.name); err != nil {
		return err
	}
	var mail []locktable.Notification
	err := s.file.change(ctx, deadline(ctx, t.until), t.names, func(l *locktable.Table, now locktable.Now) (err error) {
		mail, err = op(l, now)
		return err
	})
	if err != nil {
		return s.failed(t, err)
	}
	s.post.send(mail)
	return nil
}

func (s *Store) read(ctx context.Context, t task, op func(*locktable.Table, locktable.Now) error) error {
	if err := locktable.ContextEnded(ctx, t.op, t.name); err != nil {
		return err
	}
	if err := s.file.read(ctx, deadline(ctx, t.until), t.names, op); err != nil {
		return s.failed(t, err)
	}
	return nil
}

// failed says that the file was in trouble, unless the operation itself says otherwise.
func (s *Store) failed(t task, err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return err
	}
	var f *fault
	refused := errors.As(err, &f) && f.refused
	return &driver.UnavailableError{Op: t.op, Name: t.name, Cause: err, Refused: refused}
}

// deadline is when an operation has to be over: until, or what the context says if that
// is earlier, or soon.
func deadline(ctx context.Context, until time.Time) time.Time {
	end, ok := ctx.Deadline()
	switch {
	case !until.IsZero() && (!ok || until.Before(end)):
		return until
	case ok:
		return end
	}
	return time.Now().Add(operation)
}
