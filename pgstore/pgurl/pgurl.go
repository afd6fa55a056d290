// Package pgurl opens a pgstore.Store from a URL, for programs with such a URL in
// their configuration.
//
//	postgres://user:password@host1:5432,host2/database?sslmode=verify-full&dibs_schema=locks
//
// A URL is in libpq's format: several hosts, and parameters such as sslmode, connect_timeout
// and target_session_attrs. libpq's variables, such as PGSSLROOTCERT, complete it, and so do
// pgxpool's parameters, such as pool_max_conns. Two parameters are for dibs, and are not sent
// to the server:
//
//	dibs_schema=NAME  the schema of the tables: pgstore.Schema
//	dibs_poll=true    for a pooler in transaction mode: pgstore.Poll, and no prepared statements
//
// No error or text from this package contains a user or a password.
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
	defaultConns  = 4 // a process needs few: each operation is a short statement

	// defaultConnect is the time limit for opening a connection. The pgx default is two minutes, in
	// which the connection counts in the pool.
	defaultConnect = 5 * time.Second
)

// A URL identifies the database for the locks. It is immutable.
type URL struct {
	config      *pgxpool.Config
	schema      string
	poll        bool
	hasUser     bool // the URL itself names the user
	hasPassword bool
}

// Is reports whether a text begins like a PostgreSQL database's URL.
func Is(rawURL string) bool {
	_, ok := cutScheme(rawURL)
	return ok
}

// Parse parses a URL. The error matches driver.ErrInvalid. Parse reads the files named in the URL,
// such as sslrootcert.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w PostgreSQL URL: %w", driver.ErrInvalid, err)
	}
	return u, nil
}

// Credentials contains a program's database user and password.
type Credentials struct{ Username, Password string }

// Environment returns the credentials that lookup, such as os.Getenv, returns for DIBS_USERNAME and
// DIBS_PASSWORD.
func Environment(lookup func(name string) string) Credentials {
	return Credentials{Username: lookup("DIBS_USERNAME"), Password: lookup("DIBS_PASSWORD")}
}

// With returns a copy of the URL that uses c where the URL lacks credentials. If the URL contains a
// password, c is not used. If the URL contains only a user, c's password is used.
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

// Config returns a pool configuration, which the caller can change. Pass it to
// pgxpool.NewWithConfig. Without pool_max_conns, the pool contains up to 4 connections. Without
// connect_timeout, each is opened within 5 s.
func (u *URL) Config() *pgxpool.Config { return u.config.Copy() }

// Options returns the store's options.
func (u *URL) Options() []pgstore.Option {
	options := []pgstore.Option{pgstore.Schema(u.schema)}
	if u.poll {
		options = append(options, pgstore.Poll())
	}
	return options
}

// Schema returns the schema that contains the tables.
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

// hosts returns the addresses in the order in which they are tried, and the Unix sockets'
// directories.
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

// configure sets the defaults for values missing in the URL.
func (u *URL) configure(names []string) {
	if !slices.Contains(names, "pool_max_conns") {
		u.config.MaxConns = defaultConns
	}
	if u.config.ConnConfig.ConnectTimeout == 0 {
		u.config.ConnConfig.ConnectTimeout = defaultConnect
	}
	if u.poll && !slices.Contains(names, "default_query_exec_mode") {
		// A prepared statement belongs to a single server connection.
		u.config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}
