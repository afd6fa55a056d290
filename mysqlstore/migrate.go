package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A migration waits at most lockTimeout for transactions using a table, because others wait behind
// it. Then it pauses and tries again.
const (
	longestMigration = time.Minute
	lockTimeout      = time.Second
	migrationPause   = time.Second
)

// Migrate brings the tables and procedures to Version: it creates them, or upgrades an earlier
// version. Programs with an earlier version can use locks meanwhile. If the database already has
// this version or a later version, Migrate changes nothing. The server commits each statement
// separately. So after an error call Migrate again: it continues with the remaining statements.
// Several processes can call it at once. It returns an error when ctx ends, or after a minute.
//
// It needs the privileges CREATE, CREATE ROUTINE, INSERT and SELECT, and ALTER for an upgrade. It
// returns an error if the database contains another program's tables with the same names. For an
// invalid table prefix, the error matches driver.ErrInvalid.
func (s *Store) Migrate(ctx context.Context) error {
	return s.migrateTo(ctx, Version, func(version int) []string { return up(s.prefix, version) })
}

// migrateTo takes the tables to a version. up returns the statements to create a version.
func (s *Store) migrateTo(ctx context.Context, to int, up func(version int) []string) error {
	if err := CheckTablePrefix(s.prefix); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longestMigration)
	defer cancel()
	err := s.use(ctx, func(conn *sql.Conn) error { return s.migrateWith(ctx, conn, to, up) })
	if err != nil {
		return unavailable("migrate", s.prefix, err)
	}
	return nil
}

// migrateLockSQL is a migration lock's name. It is a hash, because MySQL's names have up to 64
// characters.
const migrateLockSQL = "SHA2(LOWER(CONCAT_WS('.', DATABASE(), ?)), 256)"

func (s *Store) migrateWith(ctx context.Context, conn *sql.Conn, to int, up func(version int) []string) error {
	const limit = longestMigration / time.Second
	var locked bool
	lock := s.prefix + "migrate"
	if err := conn.QueryRowContext(ctx, "SELECT COALESCE(GET_LOCK("+migrateLockSQL+", ?), 0)", lock, int(limit)).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return fmt.Errorf("another process has created the tables for more than %d s", limit)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.OperationTimeout)
		defer cancel()
		_, _ = conn.ExecContext(closing, "DO RELEASE_LOCK("+migrateLockSQL+")", lock) // it also ends with the connection
	}()
	version, err := s.versionOrForeign(ctx, conn)
	if err != nil || version >= to {
		return err
	}
	restore, err := limitLockWait(ctx, conn)
	if err != nil {
		return err
	}
	defer restore()
	for v := version + 1; v <= to; v++ {
		for _, text := range up(v) {
			if err := change(ctx, conn, text); err != nil && !isDuplicate(err) {
				return err
			}
		}
	}
	return nil
}

// limitLockWait makes statements wait at most lockTimeout for a table, until restore is called.
func limitLockWait(ctx context.Context, conn *sql.Conn) (restore func(), err error) {
	const set = "SET SESSION lock_wait_timeout = ?"
	var before int
	if err := conn.QueryRowContext(ctx, "SELECT @@lock_wait_timeout").Scan(&before); err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, set, int(lockTimeout/time.Second)); err != nil {
		return nil, err
	}
	return func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.OperationTimeout)
		defer cancel()
		_, _ = conn.ExecContext(closing, set, before) // if it fails, the connection is closed
	}, nil
}

// change executes a statement that can change a table. While the table is in use, it tries again.
func change(ctx context.Context, conn *sql.Conn, text string) (err error) {
	for {
		const inUse = 1205
		_, last := conn.ExecContext(ctx, text)
		if last != nil && ctx.Err() != nil && err != nil {
			return err // a table in use explains more
		}
		if err = last; numberOf(err) != inUse {
			return err
		}
		select {
		case <-time.After(migrationPause):
		case <-ctx.Done():
			return err
		}
	}
}

// isDuplicate reports whether a table, column, index or procedure exists already.
func isDuplicate(err error) bool {
	const table, procedure, column, index = 1050, 1304, 1060, 1061
	return slices.Contains([]uint16{table, procedure, column, index}, numberOf(err))
}

// SchemaVersion returns the version of the tables and procedures in the database, or 0 if there are
// none. The result is larger than Version if a later release of this package migrated them.
func (s *Store) SchemaVersion(ctx context.Context) (version int, err error) {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	err = s.usePool(ctx, func(conn *sql.Conn) (err error) {
		version, _, err = s.version(ctx, conn)
		return err
	})
	if err != nil {
		return 0, unavailable("inspect the tables", s.prefix, err)
	}
	return version, nil
}

// version returns the version, and whether its table exists.
func (s *Store) version(ctx context.Context, conn *sql.Conn) (version int, exists bool, err error) {
	const noTable = 1146
	err = conn.QueryRowContext(ctx, with(s.prefix, 0, "SELECT COALESCE(MAX(version), 0) FROM dibs_versions")).Scan(&version)
	if numberOf(err) == noTable {
		return 0, false, nil
	}
	return version, err == nil, err
}

var createTable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`CREATE TABLE (dibs_\w+)`) })

// versionOrForeign returns the version. The error means that there are another program's tables: a
// migration creates the version's table first.
func (s *Store) versionOrForeign(ctx context.Context, conn *sql.Conn) (version int, err error) {
	version, exists, err := s.version(ctx, conn)
	if err != nil || exists {
		return version, err
	}
	for _, m := range createTable().FindAllStringSubmatch(file("v1/tables"), -1) {
		var taken bool
		const text = "SELECT COUNT(*) > 0 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
		name := s.prefix + m[1][len("dibs_"):]
		if err := conn.QueryRowContext(ctx, text, name).Scan(&taken); err != nil {
			return 0, err
		}
		if taken {
			return 0, fmt.Errorf("the database has a table %q, but none %q: it is of another program: use another prefix", name, s.prefix+"versions")
		}
	}
	return 0, nil
}
