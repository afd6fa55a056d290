package outerctx

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"time"

	"github.com/dibslock/dibs"
)

// Forms of programs that had another lock library before.

type handlers struct {
	locks *dibs.Client
	db    *sql.DB
}

func (h *handlers) update(w http.ResponseWriter, r *http.Request) {
	err := h.locks.Mutex("order").Do(r.Context(), func(ctx context.Context) error {
		_, err := h.db.ExecContext(r.Context(), "UPDATE orders SET paid = true") // want `is from outside`
		return err
	})
	if err != nil {
		slog.ErrorContext(r.Context(), "update", "err", err)
	}
}

func (h *handlers) updateWithTimeout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return h.locks.Mutex("order").Do(ctx, func(lockCtx context.Context) error {
		tx, err := h.db.BeginTx(ctx, nil) // want `is from outside`
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(lockCtx, "UPDATE orders SET paid = true"); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func (h *handlers) updateInside(ctx context.Context) error {
	return h.locks.Mutex("order").Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		tx, err := h.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET paid = true"); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func (h *handlers) notifiesLater(ctx context.Context, send func(context.Context) error) error {
	return h.locks.Mutex("order").Do(ctx, func(lockCtx context.Context) error {
		go func() {
			if err := send(context.WithoutCancel(ctx)); err != nil {
				slog.ErrorContext(ctx, "send", "err", err)
			}
		}()
		return h.db.PingContext(lockCtx)
	})
}
