package doctor

import (
	"context"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/jackc/pgx/v5"
)

// checkPooler looks for a pooler changing the server connection after each transaction.
// Notifications get lost there.
func (e *examination) checkPooler() {
	if e.target.Poll {
		return
	}
	changes, err := e.changesBackends()
	if e.Unchecked("pooler", "whether a pooler works in transaction mode", err) {
		return
	}
	e.AddAll(checkup.If(changes, checkup.Warning, "pooler", "a pooler in transaction mode is between this host and the server",
		"waiters are not notified, and retry late; prepared statements may fail",
		"connect to the server itself; or use the option Poll and pgx.QueryExecModeCacheDescribe (in a URL: dibs_poll=true)"))
}

// changesBackends reports whether a client's connection shares its server process. While a second
// connection is in a transaction, a pooler lends it the first connection's process, or gives the
// first connection another.
func (e *examination) changesBackends() (bool, error) {
	const longest = 2 * time.Second
	ctx, cancel := context.WithTimeout(e.Ctx, longest)
	defer cancel()
	conn, err := e.target.Pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	first, err := backendOf(ctx, conn)
	if err != nil {
		return false, err
	}
	other, err := pgx.ConnectConfig(ctx, e.target.Pool.Config().ConnConfig)
	if err != nil {
		return false, err
	}
	defer other.Close(context.WithoutCancel(ctx))
	tx, err := other.Begin(ctx)
	if err != nil {
		return false, err
	}
	second, err := backendOf(ctx, tx)
	if err != nil {
		return false, err
	}
	again, err := backendOf(ctx, conn)
	return first == second || first != again, err
}

func backendOf(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}) (pid int, err error) {
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}
