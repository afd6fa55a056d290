// Package exstore opens the examples' store: in memory, on a Redis, or in a database.
package exstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/mysqlstore/mysqlurl"
	"github.com/dibslock/dibs/pgstore/pgurl"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Memory describes the store in this process.
const Memory = "the embedded store"

// A Store is a store with its connection.
type Store struct {
	*driver.Full
	Description string       // for output
	closeAll    func() error // nil for the embedded store
}

// Open opens the store at a URL, in the format used by package redisurl, pgurl or mysqlurl. An
// empty URL means the embedded store. The error contains no credentials.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	switch {
	case rawURL == "":
		return &Store{Full: driver.Complete(memstore.New()), Description: Memory}, nil
	case pgurl.Is(rawURL):
		return openPostgres(ctx, rawURL)
	case mysqlurl.Is(rawURL):
		return openMySQL(ctx, rawURL)
	}
	rdb, name, err := Dial(ctx, rawURL)
	if err != nil {
		return nil, err
	}
	// A separate prefix: examples must not touch real programs' locks.
	return &Store{Full: driver.Complete(goredisstore.New(rdb, redisstore.Prefix("dibs:example:"))), Description: name, closeAll: rdb.Close}, nil
}

// Shared reports whether other processes can use the store.
func (p *Store) Shared() bool { return p.closeAll != nil }

// Close closes the connections. Close the clients on the store first.
func (p *Store) Close() error {
	if p.closeAll == nil {
		return nil
	}
	return p.closeAll()
}

// Dial returns a client for a URL, after the server has answered, and a name for output.
// Credentials can also come from the environment. Errors are a single line and contain no
// credentials.
func Dial(ctx context.Context, rawURL string) (rdb redis.UniversalClient, name string, err error) {
	logging.Disable() // failures are returned as errors
	u, err := redisurl.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
	}
	if len(u.Options()) > 0 {
		return nil, "", errors.New("DIBS_URL: the examples need a server or a cluster without a proxy in front")
	}
	rdb, err = u.With(redisurl.Environment(os.Getenv)).Open()
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		rdb.Close()
		return nil, "", fmt.Errorf("cannot use %s: %w", u, oneLine{err})
	}
	return rdb, u.String(), nil
}

// oneLine joins an error's lines, such as from several sentinels.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
