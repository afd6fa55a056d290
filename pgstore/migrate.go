package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
)

// A migration waits at most lockTimeout for transactions using a table, because others wait behind
// it. Then it pauses and tries again.
const (
	longestMigration = time.Minute
	lockTimeout      = 500 * time.Millisecond
	migrationPause   = time.Second
)

// Migrate brings the schema to Version: it creates the tables and functions, or upgrades an earlier
// version. Programs with an earlier version can use locks meanwhile. If the schema already has this
// version or a later version, Migrate changes nothing. Several processes can call it at once. It
// returns an error when ctx ends, or after a minute.
//
// To create the schema, it needs CREATE on the database, or on the schema if that exists. To
// upgrade it, it must run as the tables' owner. It returns an error if the schema contains another
// program's tables with the same names.
func (s *Store) Migrate(ctx context.Context) error {
	return s.migrateTo(ctx, Version, func(version int) []string { return up(s.schema, version) })
}

// migrateTo takes the schema to a version. up returns the statements that create one.
func (s *Store) migrateTo(ctx context.Context, to int, up func(version int) []string) error {
	if err := s.conns.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longestMigration)
	defer cancel()
	for {
		err := pgx.BeginFunc(ctx, s.conns.pool, func(tx pgx.Tx) error { return s.migrateIn(ctx, tx, to, up) })
		if err == nil {
			return nil
		}
		if !isCode(err, codeLockTimeout) {
			return unavailable("migrate", s.schema, err)
		}
		select {
		case <-time.After(migrationPause):
		case <-ctx.Done():
			return unavailable("migrate", s.schema, err)
		}
	}
}

func (s *Store) migrateIn(ctx context.Context, tx pgx.Tx, to int, up func(version int) []string) error {
	const lock = 0x64696273
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(lock)); err != nil {
		return err
	}
	have, lacking, err := s.tables(ctx, tx)
	if err != nil {
		return err
	}
	if len(have) > 0 && len(lacking) > 0 {
		return fmt.Errorf("the schema %q has a table %q, but none %q: it is of another program, or not complete: use another schema", s.schema, have[0], lacking[0])
	}
	version := 0
	if len(lacking) == 0 {
		if version, err = s.version(ctx, tx); err != nil || version >= to {
			return err
		}
	}
	statements, err := s.before(ctx, tx, version)
	if err != nil {
		return err
	}
	for v := version + 1; v <= to; v++ {
		statements = append(statements, up(v)...)
	}
	_, err = tx.Exec(ctx, strings.Join(statements, ";\n")) // in one round trip
	return err
}

// before returns the statements that come before those of a migration.
func (s *Store) before(ctx context.Context, tx pgx.Tx, version int) (statements []string, err error) {
	if version > 0 {
		return []string{fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds())}, nil
	}
	var exists bool // IF NOT EXISTS needs the right to create a schema all the same
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = $1)", s.schema).Scan(&exists); err != nil || exists {
		return nil, err
	}
	return []string{in(s.schema, version, createSchemaSQL)}, nil
}

// SchemaVersion returns the schema's version in the database, or 0 if tables are missing. The
// result is larger than Version if a later release of this package migrated the schema.
func (s *Store) SchemaVersion(ctx context.Context) (version int, err error) {
	if err := s.conns.check(); err != nil {
		return 0, err
	}
	_, lacking, err := s.tables(ctx, s.conns.pool)
	if err == nil && len(lacking) == 0 {
		version, err = s.version(ctx, s.conns.pool)
	}
	if err != nil {
		return 0, unavailable("inspect the schema", s.schema, err)
	}
	return version, nil
}

// A rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// tables returns which tables from the first version the schema contains, and which it lacks.
func (s *Store) tables(ctx context.Context, q rowQuerier) (have, lacking []string, err error) {
	const text = "SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = ANY ($2)"
	all := sqlstore.TablesOf(file("v1/tables"))
	err = q.QueryRow(ctx, text, s.schema, all).Scan(&have)
	return have, slices.DeleteFunc(all, func(table string) bool { return slices.Contains(have, table) }), err
}

func (s *Store) version(ctx context.Context, q rowQuerier) (version int, err error) {
	err = q.QueryRow(ctx, in(s.schema, 0, "SELECT coalesce(max(version), 0) FROM dibs.versions")).Scan(&version)
	return version, err
}
