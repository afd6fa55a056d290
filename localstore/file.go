package localstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// A file is the database: a single connection, used by one operation at a time. An operation is a
// transaction. It reads its names' entries, runs the lock table, and writes the changes.
type file struct {
	path       string // without symbolic links
	known      []knownFile
	session    session
	clock      clock
	inUse      chan struct{} // full while an operation uses the fields below
	closed     bool
	writeQueue *writeQueue
	db         *sql.DB
	conn       *sql.Conn
	prepared   map[string]*sql.Stmt
	liveness   *liveness
	outlive    bool // leases do not end with this process
}

const (
	appID       = 0x64696273 // "dibs"
	format      = 2
	openTimeout = 5 * time.Second // the process creating the file waits for the disk
)

// schema is the file format. ends is the time when an entry's last holder or waiter may have
// expired; an index on it finds dead processes' entries. With the write-ahead log, a kill at any
// instant does no harm. A power failure can lose the last changes, but no lease survives it anyway.
const schema = `
create table state (id integer primary key check (id = 1), boot text not null, fence integer not null, ticket integer not null, since integer not null default 0, machine text not null default '');
create table entries (name blob primary key, ends integer not null, entry text not null) without rowid;
create index entries_ends on entries (ends);
insert into state (id, boot, fence, ticket) values (1, '', 0, 0);
pragma application_id = 0x64696273;
pragma user_version = 2;
`

// upgrade converts a file from format 1 to format 2.
const upgrade = `
alter table state add column since integer not null default 0;
alter table state add column machine text not null default '';
pragma user_version = 2;
`

func openFile(path string, c clock) (*file, error) {
	f := &file{path: path, clock: c, inUse: make(chan struct{}, 1), prepared: make(map[string]*sql.Stmt)}
	if err := f.locate(); err != nil {
		return nil, f.explain(err)
	}
	kernel, _, _ := strings.Cut(c.boot, "/")
	f.writeQueue, f.liveness = newWriteQueue(f.path), &liveness{path: f.path + ".alive", boot: hashOf(kernel)[:8]}
	if err := f.openLocked(); err != nil {
		_ = f.close() // nothing was changed
		return nil, f.explain(err)
	}
	return f, nil
}

// creating prevents this process from opening a file while it creates the file: when a process
// closes a file, the system drops all its locks on that file.
var creating sync.Mutex

// locate resolves the path, and creates an empty file if there is none.
func (f *file) locate() (err error) {
	if f.path, err = filepath.Abs(f.path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	if err := create(f.path); err != nil {
		return err
	}
	if f.path, err = filepath.EvalSymlinks(f.path); err != nil {
		return err
	}
	info, err := os.Stat(f.path)
	if err == nil && !info.Mode().IsRegular() {
		return f.newError(notRegular, nil)
	}
	return err
}

func create(path string) error {
	creating.Lock()
	defer creating.Unlock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

func (f *file) connect() (err error) {
	rooted := "/" + strings.TrimPrefix(filepath.ToSlash(f.path), "/") // also for a path with a drive letter
	dsn := url.URL{Scheme: "file", Path: rooted, RawQuery: "mode=rw"}
	if f.db, err = sql.Open("sqlite", dsn.String()); err != nil {
		return err
	}
	if f.conn, err = f.db.Conn(context.Background()); err != nil {
		return err
	}
	until := time.Now().Add(openTimeout)
	return f.retryBusy(context.Background(), until, func() error { return f.prepare(until) })
}

// prepare makes the file ready for use: it creates the tables, or upgrades them.
func (f *file) prepare(until time.Time) error {
	fresh, older, err := f.inspect()
	if err != nil {
		return err
	}
	if older {
		if err := f.upgrade(until); err != nil {
			return err
		}
	}
	if fresh {
		if err := f.create(until); err != nil {
			return err
		}
	}
	if err := f.script("pragma synchronous = normal"); err != nil {
		return err
	}
	return f.adoptEpoch(until)
}

// inspect reports whether the file is empty or in an older format. It returns an error if it is not
// a dibs file.
func (f *file) inspect() (fresh, older bool, err error) {
	var app, version, tables int
	err = f.conn.QueryRowContext(context.Background(),
		"select a.*, v.*, (select count(*) from sqlite_schema) from pragma_application_id a, pragma_user_version v",
	).Scan(&app, &version, &tables)
	switch {
	case err != nil:
		return false, false, err
	case app == 0 && version == 0 && tables == 0:
		return true, false, nil
	case app != appID:
		return false, false, f.newError(notDibs, nil)
	case version > format:
		return false, false, f.newError(newerFormat, nil)
	}
	return false, version < format, nil
}

func (f *file) upgrade(until time.Time) error {
	return f.transact(context.Background(), until, beginWrite, func() error {
		if _, older, err := f.inspect(); !older || err != nil {
			return err
		}
		return f.script(upgrade)
	})
}

// create creates the tables in an empty database. Another process may be doing the same.
func (f *file) create(until time.Time) error {
	var mode string
	if err := f.conn.QueryRowContext(context.Background(), "pragma journal_mode = wal").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return f.newError(ioFailed, errors.New("its file system does not support shared memory"))
	}
	return f.transact(context.Background(), until, beginWrite, func() error {
		if fresh, _, err := f.inspect(); !fresh || err != nil {
			return err
		}
		return f.script(schema)
	})
}

// adoptEpoch converts another epoch's file when it is opened.
func (f *file) adoptEpoch(until time.Time) error {
	before, _, err := f.state()
	if err != nil || before.sameClock(f.clock.epoch()) {
		return err
	}
	return f.transact(context.Background(), until, beginWrite, f.ensureEpoch)
}

// ensureEpoch converts the file if it is from another epoch.
func (f *file) ensureEpoch() error {
	const drift = 100 * time.Millisecond // allowed for steps of the wall clock
	before, _, err := f.state()
	if err != nil {
		return err
	}
	here := f.clock.epoch()
	switch {
	case !before.sameClock(here):
		return f.convert(before)
	case before.boot == here.boot && before.difference(here) > drift:
		return f.saveEpoch(here)
	}
	return nil
}

func (f *file) close() error {
	f.inUse <- struct{}{}
	defer func() { <-f.inUse }()
	if f.closed {
		return nil
	}
	f.closed = true
	if !f.holds() {
		f.liveness.close()
	}
	f.writeQueue.close()
	return f.closeLocked()
}

// holds reports whether the file may contain leases or waiters from this process.
func (f *file) holds() bool {
	if f.liveness.name == "" || f.conn == nil {
		return false
	}
	var some bool
	err := f.conn.QueryRowContext(context.Background(), "select exists (select 1 from entries where instr(entry, ?))", f.liveness.name).Scan(&some)
	return err != nil || some
}

// change runs op on names' entries and writes the changes. It writes nothing if op fails, or after
// until. The caller sends the notifications.
func (f *file) change(ctx context.Context, until time.Time, names []string, op func(*kvstore.Table, kvstore.Now) ([]kvstore.Notification, error)) (notifications []kvstore.Notification, err error) {
	err = f.run(ctx, until, beginWrite, func() error {
		if err := f.ensureEpoch(); err != nil {
			return err
		}
		now := f.now()
		ended, err := f.removeEnded(now)
		if err != nil {
			return err
		}
		l, before, err := f.load(names)
		if err != nil {
			return err
		}
		if !f.outlive {
			l.Owner = f.liveness.owner()
		}
		fence, ticket := l.Fence, l.Ticket
		changed, err := op(l, now)
		if err != nil {
			return err
		}
		notifications = slices.Concat(ended, changed)
		if err := f.save(l, before, now.At); err != nil {
			return err
		}
		if l.Fence != fence || l.Ticket != ticket {
			if err := f.exec("update state set fence = ?, ticket = ?", int64(l.Fence), int64(l.Ticket)); err != nil {
				return err
			}
		}
		if time.Now().After(until) {
			return errExpired
		}
		return nil
	})
	return notifications, err
}

// removeEnded removes ended holders and waiters from a few entries. It also removes the entries for
// unused names.
func (f *file) removeEnded(now kvstore.Now) (notifications []kvstore.Notification, err error) {
	const most = 8
	l, before := kvstore.NewTable(), make(map[string][]byte)
	err = f.loadRows("select name, entry from entries where ends <= ? limit ?", []any{int64(now.At), most}, l, before)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	notifications = l.Expire(now)
	for name := range before {
		before[name] = nil // written in any case: ends is another time
	}
	return notifications, f.save(l, before, now.At)
}

var errExpired = errors.New("the deadline passed before the commit; nothing was changed")

// read runs op on names' entries, or on all entries if names is nil.
func (f *file) read(ctx context.Context, until time.Time, names []string, op func(*kvstore.Table, kvstore.Now) error) error {
	err := f.run(ctx, until, beginRead, func() error {
		l, _, err := f.load(names)
		if err != nil {
			return err
		}
		return op(l, f.now())
	})
	if !errors.Is(err, errOtherBoot) {
		return err
	}
	return f.run(ctx, until, beginWrite, func() error {
		if err := f.ensureEpoch(); err != nil {
			return err
		}
		l, _, err := f.load(names)
		if err != nil {
			return err
		}
		return op(l, f.now())
	})
}

var errOtherBoot = errors.New("the entries are from another boot")

func (f *file) now() kvstore.Now { return kvstore.Now{At: f.clock.now(), Wall: time.Now()} }

// Statements to begin a transaction. A reader waits for no other process.
const (
	beginRead  = "begin"
	beginWrite = "begin immediate"
)

// run waits for its turn in this process, and for this process's turn, and runs a transaction.
func (f *file) run(ctx context.Context, until time.Time, begin string, work func() error) error {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case f.inUse <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-limit.C:
		return f.busyError()
	}
	defer func() { <-f.inUse }()
	if f.closed {
		return f.newError(storeClosed, nil)
	}
	if err := f.checkFiles(); err != nil {
		return err
	}
	return f.explain(f.transact(ctx, until, begin, work))
}

func (f *file) transact(ctx context.Context, until time.Time, begin string, work func() error) error {
	if begin == beginWrite {
		if !f.writeQueue.lock(ctx, until) {
			return cmp.Or(context.Cause(ctx), f.busyError())
		}
		defer f.writeQueue.unlock()
	}
	if err := f.retryBusy(ctx, until, func() error { return f.exec(begin) }); err != nil {
		return err
	}
	err := work()
	if err == nil {
		err = f.exec("commit")
	}
	if err != nil {
		_ = f.exec("rollback") // a full disk may have ended the transaction
	}
	return err
}

// retryBusy repeats an operation while the file is busy, until it succeeds or until passes. A busy
// file is rare: other processes wait in the write queue, unless they are opening or closing the
// file, or are not dibs.
func (f *file) retryBusy(ctx context.Context, until time.Time, do func() error) error {
	const shortest, longest = 50 * time.Microsecond, 2 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := do()
		if !isBusy(err) {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return f.busyError()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, pause/2+rand.N(pause))):
		}
	}
}

func (f *file) busyError() error { return &fileError{f.path, stayedBusy, nil, false} }

// load reads names' entries, or all entries if names is nil. It returns them as a lock table, and
// as their original texts by name.
func (f *file) load(names []string) (*kvstore.Table, map[string][]byte, error) {
	last, l, err := f.state()
	if err != nil {
		return nil, nil, err
	}
	if !last.sameClock(f.clock.epoch()) {
		return nil, nil, errOtherBoot
	}
	before := make(map[string][]byte)
	if names == nil {
		return l, before, f.loadRows("select name, entry from entries", nil, l, before)
	}
	for _, name := range names {
		if before[name] != nil {
			continue
		}
		if err := f.loadRows("select name, entry from entries where name = ?", []any{[]byte(name)}, l, before); err != nil {
			return nil, nil, err
		}
	}
	return l, before, nil
}

// loadRows reads a query's entries.
func (f *file) loadRows(query string, args []any, l *kvstore.Table, before map[string][]byte) error {
	rows, err := f.query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, text []byte
		if err := rows.Scan(&name, &text); err != nil {
			return f.newError(damaged, err)
		}
		e, err := decode(text)
		if err != nil {
			return f.newError(damaged, err)
		}
		e.CheckOwners(f.liveness.known, f.clock.now())
		l.Names[string(name)], before[string(name)] = e, text
	}
	return rows.Err()
}

// save writes the entries whose text changed, and deletes the entries for names without state.
func (f *file) save(l *kvstore.Table, before map[string][]byte, now time.Duration) error {
	for name := range before {
		if l.Names[name] != nil {
			continue
		}
		if err := f.exec("delete from entries where name = ?", []byte(name)); err != nil {
			return err
		}
	}
	for name, e := range l.Names {
		text, err := encode(e)
		if err != nil {
			return err
		}
		if bytes.Equal(text, before[name]) {
			continue
		}
		if err := f.exec("insert or replace into entries values (?, ?, ?)", []byte(name), int64(e.Expires(now)), string(text)); err != nil {
			return err
		}
	}
	return nil
}

// state reads the epoch and an empty lock table with the fence and the ticket.
func (f *file) state() (e clockEpoch, l *kvstore.Table, err error) {
	rows, err := f.query("select boot, since, machine, fence, ticket from state")
	if err != nil {
		return e, nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return e, nil, cmp.Or(rows.Err(), f.newError(damaged, nil))
	}
	l = kvstore.NewTable()
	if err := rows.Scan(&e.boot, &e.since, &e.machine, &l.Fence, &l.Ticket); err != nil {
		return e, nil, f.newError(damaged, err)
	}
	return e, l, nil
}

// None of the functions below has a context: a running operation is not interrupted, because its
// outcome would be unknown.

// script runs statements used only once.
func (f *file) script(text string) error {
	_, err := f.conn.ExecContext(context.Background(), text)
	return err
}

func (f *file) exec(text string, args ...any) error {
	s, err := f.statement(text)
	if err != nil {
		return err
	}
	_, err = s.Exec(args...)
	return err
}

func (f *file) query(text string, args ...any) (*sql.Rows, error) {
	s, err := f.statement(text)
	if err != nil {
		return nil, err
	}
	return s.Query(args...)
}

// statement prepares each text once.
func (f *file) statement(text string) (*sql.Stmt, error) {
	if s := f.prepared[text]; s != nil {
		return s, nil
	}
	s, err := f.conn.PrepareContext(context.Background(), text)
	if err == nil {
		f.prepared[text] = s
	}
	return s, err
}
