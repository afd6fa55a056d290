package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Proxy declares that a proxy is in front of several servers, and routes each command by the hash
// tag in its first key: twemproxy, Codis, Envoy, and others. Each script then uses only keys with
// the same hash tag. All clients that share names need this option. Without Proxy, two clients may
// hold a name at once, because a proxy sends a request for several names to the first name's
// server. checkup.Examine tests whether the proxy sends all names with the same hash tag to the
// same server.
//
// A lease for several names needs the same hash tag in all of them, such as {user:7}:cart and
// {user:7}:orders. Otherwise Acquire returns driver.ErrInvalid. List always returns
// driver.ErrInvalid, because a proxy cannot list keys. The store cannot be a quorum's node.
//
// Proxies forward no notifications. So waiters poll, and a holder detects a revocation at its next
// renewal. The store keeps a name's fence high-water mark (the largest fence issued) for an hour
// after each grant.
//
// Proxy cannot be combined with HiddenCluster, WithReplicas or Redisson. docs/redis.md describes
// the set-up for each proxy.
func Proxy() Option { return Option{func(s *settings) { s.format.Proxy = true }} }

var errNoNotifications = errors.New("a proxy cannot forward notifications")

// checkProxy rejects options that cannot work behind a proxy.
func (s *Store) checkProxy() error {
	var other string
	switch {
	case !s.format.Proxy:
		return nil
	case s.format.Sharded:
		other = "a cluster: its client finds the servers itself, and HiddenCluster is for an address that does"
	case s.replicas != nil:
		other = "WithReplicas: WAIT has no key, so no proxy can route it"
	case s.format.Redisson:
		other = "Redisson, whose waiters need notifications"
	default:
		return nil
	}
	return fmt.Errorf("%w: Proxy cannot be used with %s", driver.ErrInvalid, other)
}

// checkTags rejects names that a proxy can route to different servers.
func (s *Store) checkTags(r driver.AcquireRequest) error {
	if !s.format.Proxy {
		return nil
	}
	first := s.format.Route(r.Name)
	for _, name := range r.With {
		if s.format.Route(name) != first {
			return fmt.Errorf("%w: %q and %q have different hash tags, and may be on different servers behind the proxy: give all names one tag, as in {user:7}:cart and {user:7}:orders", driver.ErrInvalid, r.Name, name)
		}
	}
	return nil
}

// A proxiedConn is a Conn to a proxy. If a proxy waits too long for a server, or loses it, it
// replies with its own error: ERR Connection timed out. The request may have been executed, or may
// still be. So each error that does not come from Redis leaves the outcome unknown, like a broken
// connection.
type proxiedConn struct{ redisconn.Conn }

// Do implements redisconn.Conn.
func (c proxiedConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.Conn.Do(ctx, until, cmds, replies)
	for i := range replies {
		var reply redisconn.ServerError
		if errors.As(replies[i].Err, &reply) && !isOfRedis(string(reply)) {
			replies[i].Err = errors.New("the proxy answered: " + string(reply))
		}
	}
}

// FullPool implements redisconn.Pool.
func (c proxiedConn) FullPool(key string) string {
	if pool, ok := c.Conn.(redisconn.Pool); ok {
		return pool.FullPool(key)
	}
	return ""
}

// redisErrors are the prefixes of errors by which Redis refuses commands and scripts. They may
// follow ERR.
var redisErrors = []string{
	"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM",
	"READONLY", "TRYAGAIN", "WRONGPASS", "WRONGTYPE", "Error running script", "unknown command", "unknown subcommand", "Protocol error",
}

func isOfRedis(text string) bool {
	bare := strings.TrimPrefix(text, "ERR ")
	return strings.Contains(text, "user_script") ||
		slices.ContainsFunc(redisErrors, func(begin string) bool { return strings.HasPrefix(bare, begin) })
}
