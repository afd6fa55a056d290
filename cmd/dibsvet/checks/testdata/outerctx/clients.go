package outerctx

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/dibslock/dibs"
)

// Clients of databases, servers and processes report a failure by a value, not by an error.

type command struct{}

func (*command) Err() error { return nil }

type redisClient struct{}

func (redisClient) Set(ctx context.Context, key string) *command       { return nil }
func (redisClient) Pipeline(ctx context.Context, n int) []*command     { return nil }
func (redisClient) Watch(ctx context.Context, key string) <-chan error { return nil }

func rowsOf(ctx context.Context) iter.Seq2[int, error] { return nil }

func ofClients(ctx context.Context, locks *dibs.Client, rdb redisClient, db *sql.DB, r *http.Request) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		for n, err := range rowsOf(ctx) { // want `ctx is from outside`
			return errors.Join(err, save(inner, n))
		}
		var n int
		return errors.Join(
			rdb.Set(ctx, "a").Err(),                      // want `ctx is from outside`
			rdb.Pipeline(ctx, 2)[0].Err(),                // want `ctx is from outside`
			<-rdb.Watch(ctx, "a"),                        // want `ctx is from outside`
			db.QueryRowContext(ctx, "SELECT 1").Scan(&n), // want `ctx is from outside`
			exec.CommandContext(ctx, "true").Run(),       // want `ctx is from outside`
			r.WithContext(ctx).ParseForm(),               // want `ctx is from outside`
			save(inner, lastSeen(ctx), userFromContext(ctx), zapLogger(ctx)),
		)
	})
}

// These functions use the values only.

func lastSeen(ctx context.Context) time.Time { return time.Time{} }

type user struct{}

func (user) Validate() error { return nil }

func userFromContext(ctx context.Context) user { return user{} }

type richLogger struct{}

func (*richLogger) Warn(text string) {}
func (*richLogger) Sync() error      { return nil }

func zapLogger(ctx context.Context) *richLogger { return nil }

// Branches without an error are the work of the function.

func branches(ctx context.Context, locks *dibs.Client, errs <-chan error) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		err := save(inner)
		if err == nil {
			return save(ctx, 1) // want `ctx is from outside`
		} else if !errors.Is(err, os.ErrNotExist) {
			return save(ctx, 2)
		}
		if err != nil && inner.Err() == nil {
			return save(ctx, 3)
		}
		if inner.Err() == nil {
			return save(ctx, 4) // want `ctx is from outside`
		}
		if err != nil {
			return save(ctx, 5)
		} else {
			err = save(ctx, 6) // want `ctx is from outside`
		}
		switch {
		case err == nil:
			return save(ctx, 7) // want `ctx is from outside`
		default:
			return save(ctx, 8)
		}
	})
}

func moreBranches(ctx context.Context, locks *dibs.Client, errs <-chan error) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		err := save(inner)
		switch err {
		case nil:
			return save(ctx, 1) // want `ctx is from outside`
		case os.ErrNotExist:
			return save(ctx, 2)
		}
		switch err.(type) {
		case nil:
			return save(ctx, 3) // want `ctx is from outside`
		case *os.PathError:
			return save(ctx, 4)
		}
		if _, ok := errors.AsType[*os.PathError](err); ok {
			return save(ctx, 5)
		}
		if _, ok := errors.AsType[*os.PathError](err); !ok {
			return save(ctx, 6) // want `ctx is from outside`
		}
		if errors.Is(err, os.ErrNotExist) {
			return save(ctx, 7)
		} else {
			err = save(ctx, 8) // want `ctx is from outside`
		}
		select {
		case err := <-errs:
			return errors.Join(err, save(ctx, 9)) // want `ctx is from outside`
		case <-inner.Done():
			return save(ctx, 10)
		}
	})
}

// A result of work with the inner context says nothing of its end.

func count(ctx context.Context, args ...any) int                { return 0 }
func find(ctx context.Context, name string) (found bool, n int) { return false, 0 }
func isLost(ctx context.Context) bool                           { return ctx.Err() != nil }

func results(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		if count(inner) > 0 {
			return save(ctx, 1) // want `ctx is from outside`
		}
		n := count(inner, "stock")
		if n > 0 {
			return save(ctx, 2) // want `ctx is from outside`
		}
		switch found, _ := find(inner, "a"); {
		case found:
			return save(ctx, 3) // want `ctx is from outside`
		}
		if ctx.Err() != nil || context.Cause(ctx) != nil {
			return save(ctx, 4) // want `ctx is from outside`
		}
		if isLost(inner) || save(inner) != nil {
			return save(ctx, 5)
		}
		done := inner.Done()
		<-done
		return save(ctx, 6)
	})
}

// Names that begin like clean-up.

func closeAccount(ctx context.Context) error  { return ctx.Err() }
func unlockedDoors(ctx context.Context) error { return ctx.Err() }
func closeAll(ctx context.Context) error      { return ctx.Err() }
func tx2RollbackTo(ctx context.Context) error { return ctx.Err() }
func undoable(ctx context.Context) error      { return ctx.Err() }
func onceValue(f func() error) error          { return f() }
func onLost(f func() error)                   {}

func ofNames(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		onLost(func() error { return save(ctx) })
		return errors.Join(
			closeAll(ctx),
			tx2RollbackTo(ctx),
			closeAccount(ctx),  // want `ctx is from outside`
			unlockedDoors(ctx), // want `ctx is from outside`
			undoable(ctx),      // want `ctx is from outside`
			onceValue(func() error { return save(ctx) }), // want `ctx is from outside`
			save(inner),
		)
	})
}

// There is no fix: all fixes together would leave ctx unused.
func twoFunctions(r *http.Request, locks *dibs.Client) error {
	ctx := r.Context()
	return errors.Join(
		locks.Mutex("a").Do(r.Context(), func(inner context.Context) error {
			return save(ctx) // want `ctx is from outside`
		}),
		locks.Mutex("b").Do(r.Context(), func(inner context.Context) error {
			return save(ctx) // want `ctx is from outside`
		}),
	)
}
