// Package doctor checks whether a Redis is suitable for locks.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Target is a store, and how it uses its Redis.
type Target struct {
	Store          driver.Store
	Conn           redisconn.Conn
	Prefix         string
	Sharded        bool // the server is a cluster
	Proxy          bool
	Replicas       int // of WithReplicas; 0 without
	ReplicaTimeout time.Duration
	LacksReplicas  func(error) bool // too few replicas had a write
}

// Examine examines the servers of a store: see checkup.Examine.
func Examine(ctx context.Context, target Target) (checkup.Findings, error) {
	found, err := checkup.Collect(ctx, func(ctx context.Context, r *checkup.Report) error { return visit(ctx, target, r) })
	var u *driver.UnavailableError
	if errors.As(err, &u) && errors.Is(u.Cause, io.EOF) {
		u.Cause = fmt.Errorf("%w; if this is a proxy without HELLO, such as twemproxy: proxy=true in a URL, or a client as in docs/redis.md", u.Cause)
	}
	return found, err
}

// visit checks the masters.
func visit(ctx context.Context, target Target, r *checkup.Report) error {
	return target.Conn.Masters(ctx, func(n redisconn.Node) error {
		check := &nodeCheck{
			Server: checkup.Server{Report: r, Ctx: ctx, Addr: n.Addr},
			target: target, node: n, user: "USER",
			failed: make(map[string]error), missing: make(map[string][]string),
		}
		check.examine()
		return context.Cause(ctx)
	})
}

// A nodeCheck checks a server, and stores the results.
type nodeCheck struct {
	checkup.Server

	target      Target
	node        redisconn.Node
	unreachable error // why the server gets no more commands

	facts         map[string]string   // fields from INFO, CONFIG GET and CLUSTER INFO
	failed        map[string]error    // errors from these and other sources
	missing       map[string][]string // names missing from a source's reply
	start         checkup.TimeSample
	user          string
	cannotPublish bool // the user may not publish; this is a finding already

	answersScripts bool // a script wrote several keys
	refusesSlots   bool // a script with keys in several slots was refused
}

// The settings to read; INFO contains the others.
var checkedSettings = []string{"appendfsync", "no-appendfsync-on-rewrite", "save", "stop-writes-on-bgsave-error", "min-replicas-to-write"}

func (e *nodeCheck) examine() {
	hidden := false
	e.Run(checkup.Check{Name: "routing", Run: func() { hidden = e.checkRouting() }})
	if hidden {
		e.Visited(nil)
		return
	}
	e.Run(checkup.Check{Name: "facts", Run: func() { e.facts = wire.ParseInfo(e.text("INFO")) }})
	if !e.isReached() {
		return
	}
	e.Run(
		checkup.Check{Name: "settings", Run: e.readSettings},
		checkup.Check{Name: "role", Run: e.checkRole},
		checkup.Check{Name: "version", Run: e.checkVersion},
		checkup.Check{Name: "memory", Run: e.checkMemory},
		checkup.Check{Name: "persistence", Run: e.checkPersistence},
		checkup.Check{Name: "replication", Run: e.checkReplication},
		checkup.Check{Name: "cluster", Run: e.checkCluster},
		checkup.Check{Name: "permissions", Run: e.checkPermissions},
		checkup.Check{Name: "lock", Run: e.checkLocking},
		checkup.Check{Name: "keys", Run: e.checkKeys},
		checkup.Check{Name: "clock", Run: e.checkClock},
	)
	e.reportMissing()
}

// isReached reports whether the server replied to INFO.
func (e *nodeCheck) isReached() bool {
	closes := errors.Is(e.unreachable, io.EOF) || errors.Is(e.unreachable, syscall.ECONNRESET)
	switch {
	case e.answersScripts && closes:
		e.Visited(nil)
		e.reportClosing()
	case e.unreachable == nil && e.Ctx.Err() == nil:
		e.Visited(nil)
		return true
	case e.Ctx.Err() == nil: // otherwise the visit is cut short, which is a separate finding
		e.Visited(e.unreachable)
		e.Find(checkup.Critical, "unreachable", fmt.Sprintf("no answer: %v", e.unreachable),
			"its names cannot be locked, and leases cannot be renewed",
			"check that it runs, and that this machine may connect to it")
	}
	return false
}

func (e *nodeCheck) readSettings() {
	cmds := make([]redisconn.Cmd, len(checkedSettings))
	for i, name := range checkedSettings {
		cmds[i] = redisconn.Command("CONFIG", "GET", name) // separately: before Redis 7 CONFIG GET takes a single name
	}
	for i, r := range e.do(cmds...) {
		if r.Err != nil {
			e.failed["CONFIG GET"] = r.Err
			e.markMissing("CONFIG GET", checkedSettings[i])
		}
		maps.Copy(e.facts, wire.ParsePairs(r.Value))
	}
	e.start = e.readTime()
}

// do sends commands to the node. A server that did not reply gets no further commands: each could
// take seconds.
func (e *nodeCheck) do(cmds ...redisconn.Cmd) []redisconn.Reply {
	replies := make([]redisconn.Reply, len(cmds))
	if err := cmp.Or(e.unreachable, context.Cause(e.Ctx)); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	e.node.Do(e.Ctx, cmds, replies)
	for _, r := range replies {
		var server redisconn.ServerError
		if r.Err != nil && !errors.As(r.Err, &server) {
			e.unreachable = r.Err
		}
	}
	return replies
}

func (e *nodeCheck) doOne(words ...string) redisconn.Reply {
	return e.do(redisconn.Command(words...))[0]
}

// each sends a command for each key, and calls on with the replies.
func (e *nodeCheck) each(keys []string, cmd func(key string) redisconn.Cmd, on func(key string, r redisconn.Reply)) {
	const atOnce = 1000
	for part := range slices.Chunk(keys, atOnce) {
		cmds := make([]redisconn.Cmd, len(part))
		for i, key := range part {
			cmds[i] = cmd(key)
		}
		for i, r := range e.do(cmds...) {
			on(part[i], r)
		}
	}
}

// scan calls on for keys until it returns false, or for a time. The end of this time is no error.
func (e *nodeCheck) scan(pattern string, long time.Duration, on func(key string) bool) error {
	ctx, cancel := context.WithTimeout(e.Ctx, long)
	defer cancel()
	node := redisconn.Node{Do: func(_ context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) { copy(replies, e.do(cmds...)) }}
	err := node.Scan(ctx, pattern, func(key string) {
		if ctx.Err() == nil && !on(key) {
			cancel()
		}
	})
	if ctx.Err() != nil && e.Ctx.Err() == nil {
		return nil
	}
	return err
}

// text returns a source's text reply.
func (e *nodeCheck) text(cmd ...string) string {
	reply := e.doOne(cmd...)
	text, ok := reply.Value.(string)
	if !ok {
		e.failed[strings.Join(cmd, " ")] = cmp.Or(reply.Err, redisconn.Unexpected(reply.Value))
	}
	return text
}

// markMissing records a name missing from a source's reply.
func (e *nodeCheck) markMissing(source, name string) {
	e.missing[source] = append(e.missing[source], name)
}

func (e *nodeCheck) info(name string) (string, bool) {
	value, ok := e.facts[name]
	if !ok {
		e.markMissing(sourceOf(name), name)
	}
	return value, ok
}

func (e *nodeCheck) infoNumber(name string) (int64, bool) {
	n, err := strconv.ParseInt(e.facts[name], 10, 64)
	if err != nil {
		e.markMissing(sourceOf(name), name)
	}
	return n, err == nil
}

func sourceOf(fact string) string {
	if slices.Contains(checkedSettings, fact) {
		return "CONFIG GET"
	}
	return "INFO"
}

// optionalNumber returns a number that not every server reports, or 0.
func (e *nodeCheck) optionalNumber(name string) int64 {
	n, _ := strconv.ParseInt(e.facts[name], 10, 64)
	return n
}

// reportMissing makes a single finding for all missing names.
func (e *nodeCheck) reportMissing() {
	for _, source := range slices.Sorted(maps.Keys(e.missing)) {
		names := strings.Join(slices.Compact(slices.Sorted(slices.Values(e.missing[source]))), ", ")
		what := fmt.Sprintf("%s does not contain %s", source, names)
		remedy := "look them up in the server's configuration, or in its provider's console"
		if err := e.failed[source]; err != nil {
			what = fmt.Sprintf("%s failed: %v", source, err)
			if strings.Contains(err.Error(), "NOPERM") {
				right := strings.ReplaceAll(strings.ToLower(source), " ", "|")
				remedy = fmt.Sprintf("ACL SETUSER %s +%s, at least while dibs doctor runs", e.user, right)
			}
		}
		e.Find(checkup.Unchecked, strings.ToLower(source), what,
			"not checked: "+names,
			remedy)
	}
}
