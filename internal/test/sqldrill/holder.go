package sqldrill

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
)

// A Bank is a database in which holders change accounts, in transactions.
type Bank struct {
	Store   driver.Store
	Begin   func(ctx context.Context, level sql.IsolationLevel) (Transaction, error)
	Way     Way
	Guarded bool

	Texts
}

// A Transaction is a transaction in a Bank. Its statements contain a placeholder for each argument.
type Transaction interface {
	Read(ctx context.Context, text, account string) (value int64, err error)
	Execute(ctx context.Context, text string, args ...any) error
	Guard(ctx context.Context) error
	ReleaseIn(ctx context.Context) error
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// A Way is how a transaction is tied to a lease.
type Way struct {
	Name      string
	Level     sql.IsolationLevel
	Savepoint bool // a savepoint after the guard is rolled back
	ReleaseIn bool // the lease ends with the transaction
	Native    bool // the transaction does not use database/sql
}

// The Ways. Those that are native are for PostgreSQL alone.
var Ways = []Way{
	{Name: "read committed", Level: sql.LevelReadCommitted},
	{Name: "repeatable read", Level: sql.LevelRepeatableRead},
	{Name: "serializable", Level: sql.LevelSerializable},
	{Name: "savepoint", Level: sql.LevelReadCommitted, Savepoint: true},
	{Name: "serializable savepoint", Level: sql.LevelSerializable, Savepoint: true},
	{Name: "release in", Level: sql.LevelReadCommitted, ReleaseIn: true},
	{Name: "native", Level: sql.LevelRepeatableRead, Native: true},
	{Name: "native savepoint", Level: sql.LevelReadCommitted, Savepoint: true, Native: true},
	{Name: "native release in", Level: sql.LevelReadCommitted, ReleaseIn: true, Native: true},
}

// WayOf returns the way with a name.
func WayOf(name string) Way {
	for _, w := range Ways {
		if w.Name == name {
			return w
		}
	}
	panic("there is no way " + name)
}

// An SQLTransaction is a transaction of database/sql.
type SQLTransaction struct {
	*sql.Tx
	Guarding, Releasing func(context.Context, *sql.Tx) error
}

// Read implements Transaction.
func (t SQLTransaction) Read(ctx context.Context, text, account string) (value int64, err error) {
	err = t.QueryRowContext(ctx, text, account).Scan(&value)
	return value, err
}

// Execute implements Transaction.
func (t SQLTransaction) Execute(ctx context.Context, text string, args ...any) error {
	_, err := t.ExecContext(ctx, text, args...)
	return err
}

// Guard implements Transaction.
func (t SQLTransaction) Guard(ctx context.Context) error { return t.Guarding(ctx, t.Tx) }

// ReleaseIn implements Transaction.
func (t SQLTransaction) ReleaseIn(ctx context.Context) error { return t.Releasing(ctx, t.Tx) }

// Commit implements Transaction.
func (t SQLTransaction) Commit(context.Context) error { return t.Tx.Commit() }

// Rollback implements Transaction.
func (t SQLTransaction) Rollback(context.Context) error { return t.Tx.Rollback() }

// Texts are statements with a database's placeholders.
type Texts struct {
	Create  []string // creates the tables
	Add     string   // adds an account with the value 0
	Read    string   // returns an account's value
	Write   string   // sets an account's value
	Log     string   // adds an account, the value before, and a fence
	Changes string   // returns Log's additions for an account, in commit order
}

// An account is held for leaseTTL, and a stop lasts for longer.
const (
	leaseTTL = 100 * time.Millisecond
	stopFor  = 250 * time.Millisecond
)

// Hold repeatedly changes an account under its lock. At a random moment in each transaction it
// writes a line and waits for a line, so another process can stop it there. It returns after the
// last line.
func (b *Bank) Hold(account string, lines io.Reader, out io.Writer) error {
	locks := dibs.New(b.Store, dibs.TTL(leaseTTL), dibs.Wait(time.Minute), dibs.Timeout(5*time.Second))
	h := &holder{Bank: b, account: account, lines: bufio.NewScanner(lines), out: out}
	for !h.ended {
		options := []dibs.Option{}
		if rand.IntN(2) == 0 {
			options = append(options, dibs.NoRenew())
		}
		err := locks.Mutex(account).Do(context.Background(), h.change, options...)
		switch {
		case err == nil, errors.Is(err, dibs.ErrLost), errors.Is(err, dibs.ErrUnavailable):
		case errors.Is(err, dibs.ErrBusy): // on a busy machine a turn may take longer than the wait
		default:
			return err
		}
	}
	return nil
}

type holder struct {
	*Bank
	account string
	lines   *bufio.Scanner
	out     io.Writer
	ended   bool
}

// change adds 1 to the account. Like a stopped process, it does not notice the end of its context.
func (h *holder) change(ctx context.Context) (err error) {
	fence := carried.Fence(ctx) // the process knows it, also when its lease is lost
	ctx = context.WithoutCancel(ctx)
	stopAt := rand.IntN(4)
	tx, err := h.Begin(ctx, h.Way.Level)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // without effect after a commit
	var before int64
	steps := []func() error{
		func() error { return h.guard(ctx, tx) },
		func() (err error) {
			before, err = tx.Read(ctx, h.Read, h.account)
			return unavailable(err)
		},
		func() error {
			if err := tx.Execute(ctx, h.Write, before+1, h.account); err != nil {
				return unavailable(err)
			}
			return unavailable(tx.Execute(ctx, h.Log, h.account, before, int64(fence)))
		},
		func() error { return unavailable(tx.Commit(ctx)) },
	}
	for i, step := range steps {
		if i == stopAt {
			h.stop()
		}
		if err := step(); err != nil {
			h.report(err)
			return err
		}
	}
	h.say("committed")
	return nil
}

// guard ties the transaction to the lease. Then a savepoint may be rolled back.
func (h *holder) guard(ctx context.Context, tx Transaction) (err error) {
	switch {
	case h.Guarded && h.Way.ReleaseIn:
		err = tx.ReleaseIn(ctx)
	case h.Guarded:
		err = tx.Guard(ctx)
	}
	if err != nil || !h.Way.Savepoint {
		return err
	}
	return unavailable(errors.Join(
		tx.Execute(ctx, "SAVEPOINT s"),
		tx.Execute(ctx, h.Write, -1, h.account),
		tx.Execute(ctx, "ROLLBACK TO SAVEPOINT s"),
	))
}

// unavailable marks a database error, because the database may be down.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &driver.UnavailableError{Op: "change", Cause: err}
}

func (h *holder) report(err error) {
	if errors.Is(err, dibs.ErrLost) {
		h.say("refused")
	}
}

// stop lets the other process stop this process.
func (h *holder) stop() {
	h.say("stop")
	if !h.lines.Scan() {
		h.ended = true
		return
	}
	if h.lines.Text() == "pause" {
		time.Sleep(stopFor) // as a garbage collection, or a slow disk
	}
}

func (h *holder) say(line string) { _, _ = io.WriteString(h.out, line+"\n") }
