package pgstore

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

//go:embed sql
var files embed.FS

// file returns the text of a file with SQL.
func file(name string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}

// SQL returns the statements that create the schema with its tables and functions, for a tool
// that manages migrations.
func SQL(schema string) string {
	return in(schema, "CREATE SCHEMA IF NOT EXISTS dibs;\n\n") + inside(schema)
}

// inside returns the statements that create what is in the schema.
func inside(schema string) string { return in(schema, file("tables")+"\n"+file("functions")) }

// HasTables reports whether all tables exist.
func (s *Store) HasTables(ctx context.Context) (exists bool, err error) {
	_, lacking, err := s.tables(ctx, s.conns.pool)
	if err != nil {
		return false, unavailable("inspect the schema", s.schema, err)
	}
	return len(lacking) == 0, nil
}

// A rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// tables returns which tables the schema has, and which it lacks.
func (s *Store) tables(ctx context.Context, q rowQuerier) (have, lacking []string, err error) {
	const text = "SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = ANY ($2)"
	all := sqlstore.TablesOf(file("tables"))
	err = q.QueryRow(ctx, text, s.schema, all).Scan(&have)
	return have, slices.DeleteFunc(all, func(table string) bool { return slices.Contains(have, table) }), err
}

// Migrate creates the schema if its tables do not exist. It may run in several processes at once. It
// needs CREATE on the database, or on the schema if that exists. It returns an error if the schema has
// tables of another program with the same names.
func (s *Store) Migrate(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, s.conns.pool, func(tx pgx.Tx) error { return s.migrate(ctx, tx) })
	if err != nil {
		return unavailable("create the schema", s.schema, err)
	}
	return nil
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx) error {
	const lock = 0x64696273
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(lock)); err != nil {
		return err
	}
	have, lacking, err := s.tables(ctx, tx)
	switch {
	case err != nil || len(lacking) == 0:
		return err
	case len(have) > 0:
		return fmt.Errorf("the schema %q has a table %q, but none %q: it is of another program, or not complete: use another schema", s.schema, have[0], lacking[0])
	}
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = $1)", s.schema).Scan(&exists); err != nil {
		return err
	}
	text := SQL(s.schema)
	if exists {
		text = inside(s.schema) // IF NOT EXISTS needs the right to create one all the same
	}
	_, err = tx.Exec(ctx, text)
	return err
}

// in replaces the schema "dibs" in a text.
func in(schema, text string) string {
	if schema == "dibs" {
		return text
	}
	tag := "$$" // of the bodies of functions
	for i := 0; strings.Contains(schema, tag); i++ {
		tag = fmt.Sprintf("$dibs%d$", i)
	}
	text = strings.ReplaceAll(text, "$$", tag)
	text = strings.ReplaceAll(text, "dibs.", quote(schema)+".")
	return strings.ReplaceAll(text, "SCHEMA IF NOT EXISTS dibs;", "SCHEMA IF NOT EXISTS "+quote(schema)+";")
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// statements are the texts that the store sends.
type statements struct {
	acquireQuiet, acquireOne, acquire, resize, releaseQuiet, releaseOne, release, cancel, revoke, fenceOf, wanted, extend, inspect, list, guard, releaseIn, committed, removeUnused string
}

func statementsOf(schema string) statements {
	return statements{
		acquireQuiet: in(schema, file("acquire_quiet")), acquireOne: in(schema, acquireOneSQL), acquire: in(schema, acquireSQL), resize: in(schema, resizeSQL),
		releaseQuiet: in(schema, file("release_quiet")), releaseOne: in(schema, releaseOneSQL), release: in(schema, releaseSQL), cancel: in(schema, cancelSQL), revoke: in(schema, revokeSQL),
		wanted: in(schema, wantedSQL), fenceOf: in(schema, fenceOfSQL),
		extend: in(schema, file("extend")), inspect: in(schema, file("inspect")), list: in(schema, file("list")),
		guard:        in(schema, guardSQL),
		releaseIn:    in(schema, releaseInSQL),
		committed:    in(schema, committedSQL),
		removeUnused: in(schema, "SELECT dibs.remove_unused($1, dibs.now() - $2)"),
	}
}
