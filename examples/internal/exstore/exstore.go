// Package place is where the examples keep their locks: in memory, or on the
// Redis of a URL.
package exstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/memstore"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Memory is the name of the place that is in this process.
const Memory = "the embedded store"

// A Store is a store, and what is under it.
type Store struct {
	driver.Store
	Description string // for people
	rdb         redis.UniversalClient
}

// Open returns the place of a URL, as redisurl has it, and the embedded store for
// the empty one.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	if rawURL == "" {
		return &Store{Store: memstore.New(), Description: Memory}, nil
	}
	rdb, name, err := Dial(ctx, rawURL)
	if err != nil {
		return nil, err
	}
	// A prefix of its own: an example must not meet the locks of a real program.
	return &Store{Store: goredisstore.New(rdb, goredisstore.Prefix("dibs:example:")), Description: name, rdb: rdb}, nil
}

// Shared reports whether other processes can come to the place too.
func (p *Store) Shared() bool { return p.rdb != nil }

// Close closes the connections. It comes after Close of the clients on the place.
func (p *Store) Close() error {
	if p.rdb == nil {
		return nil
	}
	return p.rdb.Close()
}

// Dial returns a client for a URL once the server has answered, and what to call
// it before people. Credentials may also stand in the environment. Its errors are
// one line and tell none.
func Dial(ctx context.Context, rawURL string) (rdb redis.UniversalClient, name string, err error) {
	logging.Disable() // what fails is told by the error
	u, err := redisurl.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("DIBS_URL: %w", err)
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

// oneLine is an error of several lines, such as one of several sentinels, in one.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
