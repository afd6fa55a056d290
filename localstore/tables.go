package localstore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// tables are the lock tables in a file, with this process's waiters. Each operation is a
// transaction.
type tables struct {
	file     *file
	notifier notifier
	waiters  waitTable
}

// Do implements kvstore.Tables.
func (t *tables) Do(ctx context.Context, o *kvstore.Operation) error {
	if err := t.do(ctx, o); err != nil {
		var f *fileError
		refused := errors.As(err, &f) && f.refused
		return &driver.UnavailableError{Op: o.Verb(), Name: o.Name(), Cause: err, Refused: refused}
	}
	return nil
}

func (t *tables) do(ctx context.Context, o *kvstore.Operation) error {
	names, all := o.Names()
	if all {
		names = nil
	}
	if o.ReadOnly() {
		return t.file.read(ctx, o.Deadline(ctx), names, func(l *kvstore.Table, now kvstore.Now) error {
			o.Run(l, now)
			return nil
		})
	}
	notifications, err := t.file.change(ctx, o.Deadline(ctx), names, func(l *kvstore.Table, now kvstore.Now) ([]kvstore.Notification, error) {
		notifications := o.Run(l, now)
		if r, reply, ok := o.Acquired(); ok {
			t.waiters.record(r, reply, l)
		}
		return notifications, nil
	})
	if err == nil {
		t.notifier.send(notifications)
	}
	return err
}
