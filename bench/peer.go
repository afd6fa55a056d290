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

// leaseTTL is all peers' TTL, except in the table held. All other leases are released long before
// it ends.
const leaseTTL = 10 * time.Second

// A peer is a lock implementation with the settings recommended in its documentation. Its
// background goroutines end with the worker process.
type peer interface {
	// Lock acquires a name. It waits until ctx ends.
	Lock(ctx context.Context, name string) (unlock func() error, err error)

	// Wire returns the names of the commands sent by the peer's clients. All other commands on the
	// server were called by scripts.
	Wire() []string
}

// A renewingPeer renews its leases.
type renewingPeer interface {
	peer

	// Keep acquires a free name and renews it until the process ends.
	Keep(ctx context.Context, name string) (heldLease, error)
}

// A heldLease is a lease renewed by its peer.
type heldLease interface {
	// Lost reports whether the peer considers the lease lost.
	Lost() bool
}

// An endpoint is a process's connection to the server, or to several, on which a peer is
// opened.
type endpoint struct {
	addr string
	rdb  *redis.Client // shared in the process, with default settings, as in a service
	lib  library       // rdb, or another library: see withLibrary
	more []library     // the quorum's other nodes
	ttl  time.Duration
}

// An opener opens a peer on an endpoint.
type opener func(endpoint) (peer, error)

func newEndpoint(addrs []string, ttl time.Duration) endpoint {
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	s := endpoint{addr: addrs[0], rdb: rdb, lib: onGoredis{rdb}, ttl: ttl}
	for _, addr := range addrs[1:] {
		s.more = append(s.more, onGoredis{redis.NewClient(&redis.Options{Addr: addr})})
	}
	return s
}

// store returns the store for dibs. Trusting lets new servers vote at once: there are no earlier
// locks that a restart could have erased.
func (s endpoint) store() driver.Store {
	if len(s.more) == 0 {
		return s.lib.store()
	}
	nodes := []driver.Voter{s.lib.store()}
	for _, lib := range s.more {
		nodes = append(nodes, lib.store())
	}
	q, err := quorum.Config{Trusting: true}.New(nodes...)
	if err != nil {
		panic(err)
	}
	return q
}

// pools returns the pools for redsync.
func (s endpoint) pools() []redsyncredis.Pool {
	pools := []redsyncredis.Pool{s.lib.pool()}
	for _, lib := range s.more {
		pools = append(pools, lib.pool())
	}
	return pools
}

// peers are all peers by name.
var peers = map[string]opener{
	"baseline":             openBaseline,
	"baseline-grant":       openPushBaseline,
	"baseline-renew@batch": openRenewBaseline,
	"baseline-quorum":      openQuorumBaseline,
	"dibs":                 openDibs,
	"dibs@cohort":          openCohort(0),
	"dibs@linger":          openCohort(cohortLinger),
	"dibs readers":         openPrimitive(rlock),
	"dibs permits":         openPrimitive(permit),
	"dibs multi-lock":      openPrimitive(multiLock),
	"redsync":              openRedsync,
	"redsync@10ms":         openRedsyncWith(redsync.WithRetryDelay(10 * time.Millisecond)),
	"redsync@2ms":          openRedsyncWith(redsync.WithRetryDelay(2 * time.Millisecond)),
	"redsync@failfast":     openRedsyncWith(redsync.WithFailFast(true)),
	"redislock":            openRedislock,
	"rueidislock":          openRueidislock,
	"baseline@rueidis":     withLibrary(dialRueidis, openBaseline),
	"dibs@rueidis":         withLibrary(dialRueidis, openDibs),
	"redsync@rueidis":      withLibrary(dialRueidis, openRedsync),
	"baseline@redigo":      withLibrary(dialRedigo, openBaseline),
	"dibs@redigo":          withLibrary(dialRedigo, openDibs),
	"redsync@redigo":       withLibrary(dialRedigo, openRedsync),

	"baseline@postgres":             openPgBaseline,
	"baseline-notify@postgres":      openPgNotifyBaseline,
	"baseline-renew@batch@postgres": openPgRenewBaseline,
	"dibs@postgres":                 openPgDibs,
	"advisory@postgres":             openAdvisory(0),
	"try-advisory@10ms@postgres":    openAdvisory(10 * time.Millisecond),

	"dibs@local":   openLocalDibs,
	"dibs@mariadb": openMariaDibs,
	"dibs@memory":  openMemoryDibs,
}

func openPeer(name string, s endpoint) (peer, error) {
	open, ok := peers[name]
	if !ok {
		return nil, fmt.Errorf("unknown peer %q", name)
	}
	return open(s)
}

// isBaseline reports whether a peer is a baseline and not a lock library.
func isBaseline(name string) bool { return strings.HasPrefix(name, "baseline") }

// chosen returns the names selected by the flag -peers, and all baselines.
func (c config) chosen(names ...string) []string {
	if c.only == "" {
		return names
	}
	wanted := strings.Split(c.only, ",")
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !isBaseline(name) && !slices.Contains(wanted, name)
	})
}
