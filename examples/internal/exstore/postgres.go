package exstore

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/pgstore/pgurl"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is the examples' schema, which must not touch real programs' locks.
const Schema = "dibs_example"

func openPostgres(ctx context.Context, rawURL string) (*Store, error) {
	pool, name, err := DialPostgres(ctx, rawURL)
	if err != nil {
		return nil, err
	}
	s := pgstore.New(pool, pgstore.Schema(Schema))
	if err := s.Migrate(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return &Store{Full: driver.Complete(s), Description: name, closeAll: func() error { pool.Close(); return nil }}, nil
}

// DialPostgres returns the connections to a database, after it has answered, and a name for output.
// Credentials can also come from the environment. Errors contain no credentials.
func DialPostgres(ctx context.Context, rawURL string) (pool *pgxpool.Pool, name string, err error) {
	u, err := pgurl.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
	}
	pool, err = pgxpool.NewWithConfig(ctx, u.With(pgurl.Environment(os.Getenv)).Config())
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := pgstore.New(pool).SchemaVersion(ctx); err != nil {
		pool.Close()
		return nil, "", fmt.Errorf("cannot use %s: %w", u, err)
	}
	return pool, u.String(), nil
}
