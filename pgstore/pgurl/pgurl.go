// Package pgurl opens a pgstore.Store from one text, for programs that get the URL of the
// locks from a configuration.
//
//	postgres://user:password@host1:5432,host2/database?sslmode=verify-full&dibs_schema=locks
//
// A URL has the format of libpq: several hosts, and parameters such as sslmode, connect_timeout
// and target_session_attrs. The variables of libpq, such as PGSSLROOTCERT, complete it, and
// so do the parameters of package pgxpool, such as pool_max_conns. Two parameters are for
// dibs, and are not sent to the server:
//
//	dibs_schema=NAME  the schema of the tables: pgstore.Schema
//	dibs_poll=true    for a pooler in transaction mode: pgstore.Poll, and no prepared statements
//
// No error and no text of this package contains a user or a password.
package pgurl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultSchema = "dibs"
	defaultConns  = 4 // a process needs few: each operation is one short statement

	// defaultConnect is the time limit for opening a connection. That of pgx is two minutes, in
	// which the connection counts in the pool.
	defaultConnect = 5 * time.Second
)

// A URL says in which database the locks are. It is immutable.
type URL struct {
	config      *pgxpool.Config
	schema      string
	poll        bool
	hasUser     bool // the URL itself names the user
	hasPassword bool
}

// Is reports whether a text begins like the URL of a PostgreSQL database.
func Is(rawURL string) bool {
	_, ok := cutScheme(rawURL)
	return ok
}

// Parse parses a URL. The error matches driver.ErrInvalid. Parse reads the files that the URL
// names, such as sslrootcert.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w PostgreSQL URL: %w", driver.ErrInvalid, err)
	}
	return u, nil
}

// Credentials are the user and password of a program for a database.
type Credentials struct{ Username, Password string }

// Environment returns the credentials that lookup, such as os.Getenv, has for the names
// DIBS_USERNAME and DIBS_PASSWORD.
func Environment(lookup func(name string) string) Credentials {
	return Credentials{Username: lookup("DIBS_USERNAME"), Password: lookup("DIBS_PASSWORD")}
}

// With returns a copy of the URL that uses c where the URL has no credentials. If the URL has
// a password, neither user nor password of c are used. If the URL has only a user, the
// password of c is used.
func (u *URL) With(c Credentials) *URL {
	if u.hasPassword {
		return u
	}
	with := *u
	with.config = u.config.Copy()
	conn := with.config.ConnConfig
	conn.Password = cmp.Or(c.Password, conn.Password)
	if !u.hasUser {
		conn.User = cmp.Or(c.Username, conn.User)
	}
	return &with
}

// Config returns the configuration of a pool, which the caller may change. Pass it to
// pgxpool.NewWithConfig. Without pool_max_conns, the pool has up to 4 connections. Without
// connect_timeout, each is opened within 5 s.
func (u *URL) Config() *pgxpool.Config { return u.config.Copy() }

// Options returns the options of the store.
func (u *URL) Options() []pgstore.Option {
	options := []pgstore.Option{pgstore.Schema(u.schema)}
	if u.poll {
		options = append(options, pgstore.Poll())
	}
	return options
}

// Schema returns the schema of the tables.
func (u *URL) Schema() string { return u.schema }

// String returns the hosts, the database and the schema, without credentials.
func (u *URL) String() string {
	conn := u.config.ConnConfig
	hosts, sockets := u.hosts()
	text := "postgres://" + strings.Join(hosts, ",") + "/" + url.PathEscape(conn.Database)
	var query []string
	if len(sockets) > 0 {
		query = append(query, "host="+strings.Join(sockets, ","))
	}
	if u.schema != defaultSchema {
		query = append(query, "dibs_schema="+url.QueryEscape(u.schema))
	}
	if len(query) > 0 {
		text += "?" + strings.Join(query, "&")
	}
	return text
}

// hosts returns the addresses in the order in which they are tried, and the directories of
// Unix sockets.
func (u *URL) hosts() (addrs, sockets []string) {
	add := func(host string, port uint16) {
		list, text := &addrs, net.JoinHostPort(host, strconv.Itoa(int(port)))
		if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") {
			list, text = &sockets, host
		}
		if !slices.Contains(*list, text) { // sslmode=prefer tries each host twice
			*list = append(*list, text)
		}
	}
	conn := u.config.ConnConfig
	add(conn.Host, conn.Port)
	for _, f := range conn.Fallbacks {
		add(f.Host, f.Port)
	}
	return addrs, sockets
}

func (u *URL) set(name, value string) (err error) {
	switch name {
	case "dibs_schema":
		if value == "" || len(value) > 63 || strings.Contains(value, "\x00") {
			return errors.New("dibs_schema: want the name of a schema, up to 63 bytes")
		}
		u.schema = value
	case "dibs_poll":
		if u.poll, err = strconv.ParseBool(value); err != nil {
			return errors.New("dibs_poll: want true or false")
		}
	default:
		return errors.New("unknown parameter that begins with dibs_: want dibs_schema or dibs_poll")
	}
	return nil
}

// configure sets what the URL leaves open.
func (u *URL) configure(names []string) {
	if !slices.Contains(names, "pool_max_conns") {
		u.config.MaxConns = defaultConns
	}
	if u.config.ConnConfig.ConnectTimeout == 0 {
		u.config.ConnConfig.ConnectTimeout = defaultConnect
	}
	if u.poll && !slices.Contains(names, "default_query_exec_mode") {
		// A prepared statement belongs to one connection of the server.
		u.config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}
