package rueidisstore

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// sweep sends probes until one is answered, which closes connections that ended while they were
// idle. rueidis detects these only by its ping, 1 to 2 s later. A restarted proxy or server ends
// all idle connections; a retrying caller cannot wait for a failure on each.
//
// Without an idle connection a probe opens a new connection, which a server with too many clients,
// or a proxy without servers, ends at once. So the number of probes is limited.
func (c *conn) sweep(ctx context.Context, client rueidis.Client, cmd redisconn.Cmd) {
	for ctx.Err() == nil && c.probes.allow(time.Now()) {
		one := probe(client.B(), cmd.Key())
		if !redisconn.Broken(c.newer.Load().of(client, one).Do(ctx, one).NonRedisError()) {
			return
		}
	}
}

// probe returns a command without effect for a key's node, or for any node if the key is empty.
func probe(b rueidis.Builder, key string) rueidis.Completed {
	if key != "" {
		return b.Arbitrary("EXISTS").Keys(key).Blocking()
	}
	return b.Arbitrary("PING").Blocking()
}

// A probeLimit allows many probes at once, and few per second for long. The zero
// probeLimit is ready for use. It is safe for concurrent use.
type probeLimit struct {
	mu   sync.Mutex
	free time.Time // when all probes are allowed again
}

const (
	maxProbes  = 128                    // at once: more than most pools' idle connections
	probePause = 500 * time.Millisecond // between probes, in the long run
)

// allow reports whether another probe is allowed now, and counts it.
func (p *probeLimit) allow(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free
	if free.Before(now) {
		free = now
	}
	if free.Sub(now) > (maxProbes-1)*probePause {
		return false
	}
	p.free = free.Add(probePause)
	return true
}
