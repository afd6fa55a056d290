package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/go-redis/v9"
)

// leaseTTL is what every peer asks for, except where leases are held for long.
// No run of a table about speed comes near its end.
const leaseTTL = 10 * time.Second

// A peer is one way to lock, with settings that its documentation suggests. What it
// runs in the background ends with the worker process.
type peer interface {
	// Lock takes a name, waiting until ctx ends.
	Lock(ctx context.Context, name string) (unlock func() error, err error)

	// Wire names the commands that its clients send. Nothing else that the server
	// has executed came over the wire: it was called by scripts.
	Wire() []string
}

// A renewingPeer is a peer that renews its leases.
type renewingPeer interface {
	peer

	// Keep takes a free name and keeps it until the process ends.
	Keep(ctx context.Context, name string) (heldLease, error)
}

// heldLease is a lease that is being renewed.
type heldLease interface {
	// Lost reports whether its peer has given it up.
	Lost() bool
}

// An endpoint is what a peer is opened on: one process' way to the server, or to several.
type endpoint struct {
	addr string
	rdb  *redis.Client // one for the process, with the default settings, as in a service
	lib  library       // rdb, or another; see on
	more []library     // the other nodes of a quorum, if it is one
	ttl  time.Duration
}

// An opener makes a peer on a site.
type opener func(endpoint) (peer, error)

func newEndpoint(addrs []string, ttl time.Duration) endpoint {
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	s := endpoint{addr: addrs[0], rdb: rdb, lib: onGoredis{rdb}, ttl: ttl}
	for _, addr := range addrs[1:] {
		s.more = append(s.more, onGoredis{redis.NewClient(&redis.Options{Addr: addr})})
	}
	return s
}

// store is what dibs works on. New servers may vote at once: they have nothing to forget.
func (s endpoint) store() driver.Store {
	if len(s.more) == 0 {
		return s.lib.store()
	}
	nodes := []driver.Store{s.lib.store()}
	for _, lib := range s.more {
		nodes = append(nodes, lib.store())
	}
	q, err := quorum.Config{Trusting: true}.New(nodes...)
	if err != nil {
		panic(err)
	}
	return q
}

// pools are what redsync works on.
func (s endpoint) pools() []redsyncredis.Pool {
	pools := []redsyncredis.Pool{s.lib.pool()}
	for _, lib := range s.more {
		pools = append(pools, lib.pool())
	}
	return pools
}

// peers are all there are, by name.
var peers = map[string]opener{
	"floor":             openBaseline,
	"floor-grant":       openPushBaseline,
	"floor-renew@batch": openRenewBaseline,
	"floor-quorum":      openQuorumBaseline,
	"dibs":              openDibs,
	"dibs readers":      openPrimitive(rlock),
	"dibs permits":      openPrimitive(permit),
	"dibs set":          openPrimitive(multiLock),
	"redsync":           openRedsync,
	"redsync@10ms":      openRedsyncWith(redsync.WithRetryDelay(10 * time.Millisecond)),
	"redsync@2ms":       openRedsyncWith(redsync.WithRetryDelay(2 * time.Millisecond)),
	"redsync@failfast":  openRedsyncWith(redsync.WithFailFast(true)),
	"redislock":         openRedislock,
	"rueidislock":       openRueidislock,
	"floor@rueidis":     withLibrary(dialRueidis, openBaseline),
	"dibs@rueidis":      withLibrary(dialRueidis, openDibs),
	"redsync@rueidis":   withLibrary(dialRueidis, openRedsync),
	"floor@redigo":      withLibrary(dialRedigo, openBaseline),
	"dibs@redigo":       withLibrary(dialRedigo, openDibs),
	"redsync@redigo":    withLibrary(dialRedigo, openRedsync),
}

func openPeer(name string, s endpoint) (peer, error) {
	open, ok := peers[name]
	if !ok {
		return nil, fmt.Errorf("unknown peer %q", name)
	}
	return open(s)
}

// isBaseline tells a floor, which does the least that Redis allows and is no usable
// lock, from a peer.
func isBaseline(name string) bool { return strings.HasPrefix(name, "floor") }

// chosen drops the peers that were not asked for. Floors stay.
func (c config) chosen(names ...string) []string {
	if c.only == "" {
		return names
	}
	wanted := strings.Split(c.only, ",")
	return slices.DeleteFunc(names, func(name string) bool {
		return !isBaseline(name) && !slices.Contains(wanted, name)
	})
}
