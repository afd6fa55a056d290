package main

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/pgstore/pgurl"
	"github.com/jackc/pgx/v5/pgxpool"
)

func openPostgres(f *storeFlags, raw string) (*database, error) {
	u, err := pgurl.Parse(raw)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", f.urlSource(), err)}
	}
	u = u.With(pgurl.Environment(f.env.get))
	config := u.Config()
	conn := config.ConnConfig
	if conn.ConnectTimeout == 0 || conn.ConnectTimeout > f.timeout {
		conn.ConnectTimeout = f.timeout
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "dibs"
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	s := pgstore.New(pool, u.Options()...)
	return &database{
		Store: s, location: u.String(), name: u.Schema(), place: fmt.Sprintf("in the schema %q", u.Schema()),
		latest: pgstore.Version, statements: func(from, to int) ([]string, error) { return pgstore.SQL(u.Schema(), from, to) },
		version: s.SchemaVersion, migrate: s.Migrate, close: pool.Close,
	}, nil
}
