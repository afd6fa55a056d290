package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A permission is an activity for which a user needs rights, and the consequence without them. A
// probe is a command without effect. It shows whether the user may send it: a server checks the
// rights before the arguments. In a probe, lock, queue, meta and highwater stand for an unused
// name's keys, channel for a channel without subscribers.
type permission struct {
	severity    checkup.Severity
	consequence string
	probes      []string
}

// permissions cover all commands of the scripts, and the others that the store sends.
func permissions(s Target) []permission {
	locking := permission{checkup.Critical, "names cannot be locked, handed off or released", []string{
		"EVAL return 0", "EVALSHA none 0", "TIME",
		"EXISTS lock", "GET lock", "SET lock x none", "DEL lock", "PTTL lock", "PEXPIRE lock none",
		"ZADD queue none m", "ZCARD queue", "ZCOUNT queue 0 0", "ZSCORE queue m", "ZRANK queue m", "ZRANGE queue 0 0",
		"ZRANGEBYSCORE queue 0 0", "ZREM queue m", "ZPOPMIN queue",
		"HGET meta f", "HSET meta f x none", "HDEL meta f", "HEXISTS meta f",
		"GET highwater", "SET highwater x none",
	}}
	if s.Replicas > 0 {
		locking.probes = append(locking.probes, "WAIT 0 1")
	}
	watching := permission{checkup.Warning, "waiters of dead processes are not passed over: each delays the others by up to 5 s", []string{"PUBSUB|NUMSUB channel"}}
	if s.Sharded {
		watching = permission{checkup.Warning, "failovers are not detected: the holder of a lock that was lost detects that at the next renewal, and waiters on that server may retry late", []string{"CLUSTER|INFO"}}
	}
	return []permission{
		locking,
		watching,
		{checkup.Warning, "waiters are not notified of a hand-off: each finds it with its next retry", []string{publish}},
		{checkup.Note, "List does not work; locks do", []string{"SCAN 0 COUNT 1"}},
	}
}

const publish = "PUBLISH channel dibs"

func (e *nodeCheck) checkPermissions() {
	if user, ok := e.doOne("ACL", "WHOAMI").Value.(string); ok {
		e.user = user
	}
	prefix := redisconn.Quote(e.target.Prefix)
	k := wire.Format{Prefix: e.target.Prefix, Sharded: e.target.Sharded}.Keys("dibs:doctor:" + rand.Text()) // without a hash tag, so that its keys differ in form
	substitutes := map[string]string{"lock": k.Lock, "queue": k.Queue, "meta": k.Meta, "highwater": k.Highwater, "channel": wire.ChannelPrefix + "doctor"}
	patterns := map[string]string{"lock": prefix + "*", "queue": "{" + prefix + "*}:dibs:*", "meta": "{" + prefix + "*}:dibs:*", "highwater": wire.FencePrefix + "*"}
	for _, d := range permissions(e.target) {
		cmds := make([]redisconn.Cmd, len(d.probes))
		for i, probe := range d.probes {
			command, args, _ := strings.Cut(probe, " ")
			parts := append(strings.Split(command, "|"), strings.Fields(args)...)
			for j, arg := range parts {
				parts[j] = cmp.Or(substitutes[arg], arg)
			}
			cmds[i] = redisconn.Command(parts...)
		}
		var missing []string
		for i, reply := range e.do(cmds...) {
			words := append(strings.Fields(d.probes[i]), "") // TIME has no key
			right := missingRight(strings.ToLower(words[0]), patterns[words[1]], reply.Err)
			if right != "" && !slices.Contains(missing, right) {
				missing = append(missing, right)
			}
		}
		e.findMissingRights(d.severity, d.consequence, missing...)
		e.cannotPublish = e.cannotPublish || len(missing) > 0 && d.probes[0] == publish
	}
}

// missingRight returns the missing right from a reply, in ACL SETUSER form.
func missingRight(command, pattern string, err error) (right string) {
	var server redisconn.ServerError
	if !errors.As(err, &server) {
		return ""
	}
	text := string(server)
	switch {
	case strings.HasPrefix(text, "ERR unknown command"), strings.HasPrefix(text, "ERR unknown subcommand"):
		return "+" + command
	case !strings.HasPrefix(text, "NOPERM"):
		return ""
	case strings.Contains(text, "channel"):
		return "&" + wire.ChannelPrefix + "*"
	case strings.Contains(text, "access"):
		return "~" + pattern
	}
	return "+" + command
}

func (e *nodeCheck) findMissingRights(severity checkup.Severity, consequence string, rights ...string) {
	list := strings.Join(rights, " ")
	e.AddAll(checkup.If(list != "", severity, "acl", fmt.Sprintf("user %s lacks %s, or the server has no such command", e.user, list),
		consequence,
		fmt.Sprintf("ACL SETUSER %s %s", e.user, list)))
}

// checkLocking tests whether locks work, which settings and permissions only suggest.
func (e *nodeCheck) checkLocking() {
	name, ok := e.testName()
	if !ok {
		return
	}
	trial := checkup.Trial{
		Store: e.target.Store, Name: name, Replies: e.target.ReplicaTimeout,
		Watch: e.watch, Watched: e.countListeners, Silent: e.cannotPublish,
	}
	if e.target.Proxy { // without notifications
		trial.Watch = nil
	}
	result := trial.Run(e.Ctx)
	if e.Ctx.Err() != nil {
		return // the interruption is a finding already
	}
	e.reportSubscription(result.Listen)
	e.AddAll(checkup.If(result.Grant != nil, checkup.Warning, "push", fmt.Sprintf("no notification of a hand-off: %v", result.Grant),
		"waiters find the grant with their next retry, up to 2.5 s late",
		"check that PUBLISH and SUBSCRIBE reach the same server or cluster"))
	e.reportFailure(result.Lock)
}

// watch subscribes as a store does, but to this server only.
func (e *nodeCheck) watch(ctx context.Context, client string, _ func() bool, on func(driver.Event)) error {
	return e.target.Conn.Subscribe(ctx, wire.ChannelPrefix+client, func() bool { return true }, func(text string) {
		if text == "" {
			on(driver.Event{Kind: driver.EventConnected})
		} else if m, ok := wire.ParseMessage(text); ok {
			on(m.Event)
		}
	})
}

// testName returns a name on this node. It is random except for its slot, which is the
// same each time: each slot in which a lock was ever granted keeps a high-water mark.
func (e *nodeCheck) testName() (string, bool) {
	const enough = 256 // enough to find a name on a master with its share of slots
	names, cmds := make([]string, enough), make([]redisconn.Cmd, enough)
	for n := range names {
		names[n] = fmt.Sprintf("{%d}:dibs:doctor:%s", n, rand.Text())
		cmds[n] = redisconn.Command("EXISTS", e.target.Prefix+names[n])
	}
	for n, reply := range e.do(cmds...) {
		var server redisconn.ServerError
		if !errors.As(reply.Err, &server) || !strings.HasPrefix(string(server), "MOVED") && !strings.HasPrefix(string(server), "ASK") {
			return names[n], true
		}
	}
	if !wire.Tagged(e.target.Prefix) { // a tagged prefix puts all names on the same node
		e.failed["a trial"] = fmt.Errorf("none of %d names is in the slots of this node", enough)
		e.markMissing("a trial", "whether locks work")
	}
	return "", false
}

// reportFailure reports a lock that could not be acquired or released.
func (e *nodeCheck) reportFailure(err error) {
	if err == nil {
		return
	}
	tooFewReplicas, text := e.target.LacksReplicas(err), err.Error()
	remedy := "see the other findings and the error"
	if strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") {
		remedy = "give the client the right user and password"
	}
	e.AddFirst(
		checkup.If(tooFewReplicas, checkup.Critical, "replicas", text,
			"each acquire is undone, and the outcome of each renewal counts as unknown",
			"see INFO replication; start replicas, or use WithReplicas with fewer replicas or a longer timeout"),
		checkup.If(true, checkup.Critical, "lock", "a lock on a random name failed: "+text, "other locks will fail too", remedy),
	)
}

// reportSubscription reports that the client could not subscribe.
func (e *nodeCheck) reportSubscription(err error) {
	if err == nil {
		return
	}
	const consequence = "waiters are not notified, and poll: ten times a second each, so up to 100 ms late"
	if right := missingRight("subscribe", "", err); right != "" {
		e.findMissingRights(checkup.Warning, consequence, right)
		return
	}
	e.Find(checkup.Warning, "push", "SUBSCRIBE failed: "+err.Error(), consequence,
		"check that the server is up, and that neither a proxy nor a renamed command prevents it")
}

// countListeners checks that scripts can count a client channel's subscribers.
func (e *nodeCheck) countListeners(client string) {
	own := wire.ChannelPrefix + client
	reply := e.doOne("PUBSUB", "NUMSUB", own)
	unseen := !e.target.Sharded && wire.ParsePairs(reply.Value)[own] == "0"
	e.AddAll(checkup.If(unseen, checkup.Warning, "numsub", "PUBSUB NUMSUB does not count an existing subscriber: the subscription is on another server",
		"live waiters count as dead and are passed over: out of order, and late",
		"use HiddenCluster(), which does not call it; or check that SUBSCRIBE goes to this server, and not to a replica"))
}
