package main

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/dibslock/dibs/mysqlstore"
	"github.com/dibslock/dibs/mysqlstore/mysqlurl"
	"github.com/go-sql-driver/mysql"
)

func openMySQL(f *storeFlags, raw string) (*database, error) {
	u, err := mysqlurl.Parse(raw)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", f.urlSource(), err)}
	}
	config := u.With(mysqlurl.Environment(f.env.get)).Config()
	if config.Timeout == 0 || config.Timeout > f.timeout {
		config.Timeout = f.timeout
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	const conns, idle = 4, time.Minute // a process needs few: each operation is a short statement
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(idle)
	s := mysqlstore.New(db, u.Options()...)
	return &database{
		Store: s, location: u.String(), name: u.TablePrefix(), place: fmt.Sprintf("with the prefix %q", u.TablePrefix()),
		latest: mysqlstore.Version, statements: func(from, to int) ([]string, error) { return mysqlstore.SQL(u.TablePrefix(), from, to) },
		version: s.SchemaVersion, migrate: s.Migrate, close: func() { _ = db.Close() }, // what is lost with a connection has ended
	}, nil
}
