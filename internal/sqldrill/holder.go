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
)

// A Bank is a database in which holders change accounts, in transactions.
type Bank struct {
	DB    *sql.DB
	Store driver.Store
	Guard func(ctx context.Context, tx *sql.Tx) error // nil: transactions are not guarded

	Texts
}

// Texts are statements with the placeholders of a database.
type Texts struct {
	Create  []string // creates the tables
	Add     string   // adds an account with the value 0
	Read    string   // returns the value of an account
	Write   string   // sets the value, of an account
	Log     string   // adds an account, the value before, and a fence
	Changes string   // returns what Log has added for an account, in the order of the commits
}

// An account is held for leaseTTL, and a stop lasts for longer.
const (
	leaseTTL = 100 * time.Millisecond
	stopFor  = 250 * time.Millisecond
)

// Hold changes an account under its lock, again and again. At a random moment of each transaction it
// writes a line and waits for one, so that another process can stop it there. It returns when
// there are no more lines.
func (b *Bank) Hold(account string, lines io.Reader, out io.Writer) error {
	locks := dibs.New(b.Store, dibs.TTL(leaseTTL), dibs.Wait(time.Minute), dibs.Timeout(5*time.Second))
	h := &holder{Bank: b, account: account, lines: bufio.NewScanner(lines), out: out}
	for !h.ended {
		options := []dibs.Option{}
		if rand.IntN(2) == 0 {
			options = append(options, dibs.NoRenew())
		}
		err := locks.Mutex(account).Do(context.Background(), h.change, options...)
		if err != nil && !errors.Is(err, dibs.ErrLost) && !errors.Is(err, dibs.ErrUnavailable) {
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

// change adds one to the account. It does not notice that its context ends, as a process that is
// stopped does not.
func (h *holder) change(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	stopAt := rand.IntN(4)
	tx, err := h.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	var before int64
	steps := []func() error{
		func() error {
			if h.Guard == nil {
				return nil
			}
			return h.Guard(ctx, tx)
		},
		func() error { return unavailable(tx.QueryRowContext(ctx, h.Read, h.account).Scan(&before)) },
		func() error {
			if _, err := tx.ExecContext(ctx, h.Write, before+1, h.account); err != nil {
				return unavailable(err)
			}
			_, err := tx.ExecContext(ctx, h.Log, h.account, before, int64(dibs.Fence(ctx)))
			return unavailable(err)
		},
		func() error { return unavailable(tx.Commit()) },
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

// unavailable marks an error of the database, which may be away.
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

// stop lets the other process stop this one.
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
