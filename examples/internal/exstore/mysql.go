package exstore

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/dibslock/dibs/mysqlstore/mysqlurl"
	"github.com/go-sql-driver/mysql"
)

// Prefix begins the names of the examples' tables, which must not touch real programs' locks.
const Prefix = "dibs_example_"

func openMySQL(ctx context.Context, rawURL string) (*Store, error) {
	db, name, err := dialMySQL(ctx, rawURL)
	if err != nil {
		return nil, err
	}
	s := mysqlstore.New(db, mysqlstore.TablePrefix(Prefix))
	if err := s.Migrate(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return &Store{Full: driver.Complete(s), Description: name, closeAll: db.Close}, nil
}

// dialMySQL returns a database, after it has answered, and a name for output. Credentials can also
// come from the environment. Errors contain no password.
func dialMySQL(ctx context.Context, rawURL string) (db *sql.DB, name string, err error) {
	u, err := mysqlurl.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
	}
	connector, err := mysql.NewConnector(u.With(mysqlurl.Environment(os.Getenv)).Config())
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
	}
	db = sql.OpenDB(connector)
	const conns = 8 // otherwise many waiters open many
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := mysqlstore.New(db).SchemaVersion(ctx); err != nil {
		db.Close()
		return nil, "", fmt.Errorf("cannot use %s: %w", u, err)
	}
	return db, u.String(), nil
}
