package main

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore/mysqlurl"
	"github.com/dibslock/dibs/pgstore/pgurl"
)

// A database is a store in a database: everything its subcommands need beside the locks.
type database struct {
	driver.Store
	location   string // without credentials
	name       string // the schema or the table prefix
	place      string // the same, as a phrase
	latest     int    // version of the tables that this program needs
	statements func(from, to int) ([]string, error)
	version    func(context.Context) (int, error) // of the tables, or 0 if there are none
	migrate    func(context.Context) error
	close      func()
}

// An opener opens a URL's database. It does not wait for a server.
type opener func(f *storeFlags, url string) (*database, error)

// openerOf returns the function that opens a URL, if it is a database URL.
func openerOf(url string) (open opener, ok bool) {
	switch {
	case pgurl.Is(url):
		return openPostgres, true
	case mysqlurl.Is(url):
		return openMySQL, true
	}
	return nil, false
}

func (f *storeFlags) openDatabase(o *opened, open opener, url string) error {
	if err := f.checkDatabase(); err != nil {
		return err
	}
	db, err := open(f, url)
	if err != nil {
		return err
	}
	o.Full, o.location, o.database = driver.Complete(db.Store), db.location, db
	o.nodes = []node{{db.location, db.Store}}
	o.closes = append(o.closes, func() error {
		closeWithin(f.timeout, db.close)
		return nil
	})
	return nil
}

// checkDatabase rejects flags that databases do not support. A prefix would separate names, so a
// database must not ignore it.
func (f *storeFlags) checkDatabase() error {
	const instead = "names in a database have no prefix; to separate them, use dibs_schema=NAME (PostgreSQL) or dibs_prefix=TEXT (MariaDB, MySQL) in the URL"
	switch prefix := f.env.get("DIBS_PREFIX"); {
	case f.prefixSet:
		return usage("--prefix needs Redis: %s", instead)
	case prefix != "":
		return usage("DIBS_PREFIX is set: %s; or unset DIBS_PREFIX", instead)
	}
	return f.checkOneStore("a database has settings of its own, such as synchronous_standby_names of PostgreSQL")
}

// checkOneStore rejects flags that only Redis or a quorum supports. replicas says what the store has
// instead of --replicas.
func (f *storeFlags) checkOneStore(replicas string) error {
	switch {
	case f.replicas > 0:
		return usage("--replicas needs Redis: %s", replicas)
	case f.mixed || f.redisson:
		return usage("--shared-keys and --redisson need Redis")
	case f.longestTTL > 0:
		return usage("--max-ttl needs a quorum: three or more --url")
	}
	return nil
}

// closeWithin calls do, which can wait for a silent server. Connections still open after the limit
// are closed when this process exits.
func closeWithin(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
