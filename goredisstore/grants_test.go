package goredisstore_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A grantLog records the grants by hand-off in the server's order. The leases' fences do not show
// this order: a waiter that repeats its request before its notification arrives gets a newer fence.
// On a busy machine this is common.
type grantLog struct {
	all  chan map[string]grant // the result
	stop func()
}

// A grant is a notification (docs/spec.md).
type grant struct{ fence, ticket uint64 }

// recordGrants begins a log.
func (b *fixture) recordGrants() *grantLog {
	const everyClient, end = "dibs:c:*", "dibs:c:end of the log"
	b.t.Helper()
	messages := dial(b.t, &redis.Options{Addr: b.server.Addr()}).PSubscribe(b.t.Context(), everyClient)
	b.t.Cleanup(func() { messages.Close() })
	if _, err := messages.Receive(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	l := &grantLog{all: make(chan map[string]grant, 1), stop: func() { b.call("PUBLISH", end, "") }}
	go func() { l.all <- readGrants(b.t, messages, end) }()
	return l
}

// grants ends the log, and returns each token's first grant. A waiter that misses its grant is
// granted the lock again.
func (l *grantLog) grants() map[string]grant {
	l.stop()
	return <-l.all
}

// readGrants receives messages until a message comes on the channel end.
func readGrants(t *testing.T, messages *redis.PubSub, end string) map[string]grant {
	all := make(map[string]grant)
	for {
		m, err := messages.ReceiveMessage(context.Background())
		if err != nil {
			t.Errorf("the log of the grants: %v", err)
			return all
		}
		if m.Channel == end {
			return all
		}
		token, g := parseGrant(m.Payload)
		if _, again := all[token]; g.fence != 0 && !again {
			all[token] = g
		}
	}
}

// parseGrant returns no fence if the message is not a grant.
func parseGrant(message string) (token string, g grant) {
	fields := strings.SplitN(message, " ", 4)
	if len(fields) < 4 {
		return "", grant{}
	}
	fence, _, _ := strings.Cut(fields[0], "/")
	g.fence, _ = strconv.ParseUint(fence, 10, 64)
	g.ticket, _ = strconv.ParseUint(fields[1], 10, 64)
	return fields[3], g
}
