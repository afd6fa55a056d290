// Package place is where the examples keep their locks: in memory, or on the
// Redis of a URL.
package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/redisstore/goredis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Memory is the name of the place that is in this process.
const Memory = "the embedded store"

// A Place is a store, and what is under it.
type Place struct {
	dibs.Store
	Name string // for people
	rdb  *redis.Client
}

// Open returns the place of a URL such as redis://:password@host:port/db, and the
// embedded store for the empty one.
func Open(ctx context.Context, rawURL string) (*Place, error) {
	if rawURL == "" {
		return &Place{Store: memstore.New(), Name: Memory}, nil
	}
	rdb, err := Dial(ctx, rawURL)
	if err != nil {
		return nil, err
	}
	// A prefix of its own: an example must not meet the locks of a real program.
	return &Place{Store: goredis.New(rdb, goredis.Prefix("dibs:example:")), Name: Name(rdb), rdb: rdb}, nil
}

// Shared reports whether other processes can come to the place too.
func (p *Place) Shared() bool { return p.rdb != nil }

// Close closes the connections. It comes after Close of the clients on the place.
func (p *Place) Close() error {
	if p.rdb == nil {
		return nil
	}
	return p.rdb.Close()
}

// Dial returns a client for a URL once the server has answered. Its errors are
// one line and tell no password.
func Dial(ctx context.Context, rawURL string) (*redis.Client, error) {
	logging.Disable() // what fails is told by the error
	options, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, malformed(rawURL, err)
	}
	rdb := redis.NewClient(options)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		rdb.Close()
		return nil, fmt.Errorf("cannot use %s: %w", Name(rdb), err)
	}
	return rdb, nil
}

// Name tells where a client is connected to, without its credentials.
func Name(rdb *redis.Client) string {
	o := rdb.Options()
	scheme := "redis://"
	switch {
	case o.Network == "unix":
		scheme = "unix://"
	case o.TLSConfig != nil:
		scheme = "rediss://"
	}
	return fmt.Sprintf("%s%s/%d", scheme, o.Addr, o.DB)
}

// malformed says what is wrong with a URL. It repeats only a URL in which there
// is no doubt which part is the password.
func malformed(rawURL string, err error) error {
	const want = "DIBS_URL must have the form redis://[:password@]host:port[/db]"
	u, bad := url.Parse(rawURL)
	if bad != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return errors.New(want)
	}
	if u.User != nil {
		u.User = url.User("xxxxx")
	}
	return fmt.Errorf("%s, this is %s: %w", want, u, err)
}
