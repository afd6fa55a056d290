package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// stepTimeout bounds one step of the smoke test.
const stepTimeout = time.Second

// A permission is what a user needs rights for, and the consequence without them. A probe
// is a command that shows whether the user may send it, and changes nothing: a server
// checks the rights before the arguments. In a probe, lock, queue, meta and highwater
// stand for the keys of an unused name, channel for a channel without subscribers.
type permission struct {
	severity    driver.Severity
	consequence string
	probes      []string
}

// permissions cover all commands of the scripts, and the others that the store sends.
func permissions(s redisstore.Target) []permission {
	locking := permission{driver.Critical, "names cannot be locked, handed off or released", []string{
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
	watching := permission{driver.Warning, "waiters of dead processes are not passed over: each delays the others by up to 5 s", []string{"PUBSUB|NUMSUB channel"}}
	if s.Sharded {
		watching = permission{driver.Warning, "failovers are not detected: the holder of a lock that was lost detects that at the next renewal, and waiters on that server may retry late", []string{"CLUSTER|INFO"}}
	}
	return []permission{
		locking,
		watching,
		{driver.Warning, "waiters are not notified of a hand-off: each finds it with its next retry", []string{publish}},
		{driver.Note, "List does not work; locks do", []string{"SCAN 0 COUNT 1"}},
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

// missingRight returns the right that a reply says is missing, in the form of ACL
// SETUSER.
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

func (e *nodeCheck) findMissingRights(severity driver.Severity, consequence string, rights ...string) {
	list := strings.Join(rights, " ")
	e.addAll(candidate{list != "", severity, "acl", fmt.Sprintf("user %s lacks %s, or the server has no such command", e.user, list),
		consequence,
		fmt.Sprintf("ACL SETUSER %s %s", e.user, list)})
}

// A smokeTest acquires one lock, queues for it, and hands it off.
type smokeTest struct {
	*nodeCheck
	name     string
	own      string // the channel of the client
	holder   driver.AcquireRequest
	waiter   driver.AcquireRequest
	messages chan string
	ended    chan error // why the subscription ended
}

// checkLocking tests what settings and permissions only suggest: that locks work.
func (e *nodeCheck) checkLocking() {
	name, ok := e.testName()
	if !ok {
		return
	}
	client := "doctor:0:" + rand.Text()
	request := func(seq uint64) driver.AcquireRequest {
		return driver.AcquireRequest{
			Name: name, Token: fmt.Sprintf("%s:%d", client, seq), Client: client, Seq: seq,
			TTL: driver.WaiterTTL, Weight: 1, Limit: 1, Queue: true,
		}
	}
	t := &smokeTest{nodeCheck: e, name: name, own: wire.ChannelPrefix + client, holder: request(1), waiter: request(2), messages: make(chan string, 16), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	go t.subscribe(ctx)
	if err := t.handOff(); err != nil {
		t.reportFailure(err)
		t.cleanUp()
	}
}

// subscribe listens on the channel of the client, until ctx ends.
func (t *smokeTest) subscribe(ctx context.Context) {
	if t.target.Proxy { // it has no notifications
		return
	}
	t.ended <- t.target.Conn.Subscribe(ctx, t.own, func() bool { return true }, func(text string) {
		select {
		case t.messages <- text:
		default:
		}
	})
}

// testName returns a name on this node. It is random except for its slot, which is the
// same each time: each slot in which a lock was ever granted keeps a high-water mark.
func (e *nodeCheck) testName() (string, bool) {
	const enough = 256 // to find one on a master that has its share of the slots
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
	if !wire.Tagged(e.target.Prefix) { // a tagged prefix puts all names on one node
		e.failed["a trial"] = fmt.Errorf("none of %d names is in the slots of this node", enough)
		e.markMissing("a trial", "whether locks work")
	}
	return "", false
}

// handOff runs the test, and returns the first error.
func (t *smokeTest) handOff() error {
	listens := !t.target.Proxy && t.awaitSubscription()
	for _, step := range []func() error{
		func() error { return t.acquire(t.holder, true) },
		func() error { return t.acquire(t.waiter, false) },
		t.extend,
		func() error { return t.release(t.holder) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if listens && !t.cannotPublish {
		t.awaitGrant()
	}
	if err := t.acquire(t.waiter, true); err != nil {
		return err
	}
	return t.release(t.waiter)
}

func (t *smokeTest) acquire(c driver.AcquireRequest, held bool) error {
	answer, err := t.store.Acquire(t.ctx, c)
	if err == nil && answer.Held != held {
		err = fmt.Errorf("acquire returned Held = %v instead of %v", answer.Held, held)
	}
	return err
}

func (t *smokeTest) extend() error {
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	return t.store.Extend(ctx, []driver.ExtendRequest{{Name: t.name, Token: t.holder.Token, Client: t.holder.Client, TTL: t.holder.TTL}})[0]
}

func (t *smokeTest) release(c driver.AcquireRequest) error {
	held, err := t.store.Release(t.ctx, driver.ReleaseRequest{Name: t.name, Token: c.Token})
	if err == nil && !held {
		err = errors.New("the lock was lost right after it was acquired")
	}
	return err
}

// reportFailure reports a smoke test that has failed.
func (t *smokeTest) reportFailure(err error) {
	if t.ctx.Err() != nil {
		return // the interruption is a finding already
	}
	var few *redisstore.ReplicasError
	tooFewReplicas, text := errors.As(err, &few), err.Error()
	remedy := "see the other findings and the error"
	if strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") {
		remedy = "give the client the right user and password"
	}
	t.addAll(
		candidate{tooFewReplicas, driver.Critical, "replicas", text,
			"each acquire is undone, and the outcome of each renewal counts as unknown",
			"see INFO replication; start replicas, or use WithReplicas with fewer replicas or a longer timeout"},
		candidate{!tooFewReplicas, driver.Critical, "lock", "a lock on a random name failed: " + text,
			"other locks will fail too",
			remedy},
	)
}

// cleanUp cancels the requests, also when ctx has ended. Nobody waits for it then.
func (t *smokeTest) cleanUp() {
	for _, c := range []driver.AcquireRequest{t.waiter, t.holder} {
		c.Until = time.Now().Add(stepTimeout)
		_ = t.store.Cancel(context.WithoutCancel(t.ctx), c) // otherwise they expire
	}
}

// awaitMessage waits for a message, and returns why it did not arrive.
func (t *smokeTest) awaitMessage(is func(text string) bool) error {
	ctx, cancel := context.WithTimeoutCause(t.ctx, stepTimeout, fmt.Errorf("no message within %v", stepTimeout))
	defer cancel()
	for {
		select {
		case text := <-t.messages:
			if is(text) {
				return nil
			}
		case err := <-t.ended:
			return fmt.Errorf("the subscription ended: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitSubscription waits until the subscription is confirmed.
func (t *smokeTest) awaitSubscription() bool {
	const consequence = "waiters are not notified, and poll: ten times a second each, so up to 100 ms late"
	err := t.awaitMessage(func(text string) bool { return text == "" })
	right := missingRight("subscribe", "", err)
	switch {
	case err == nil:
		t.countListeners()
	case t.ctx.Err() != nil: // the interruption is a finding already
	case right != "":
		t.findMissingRights(driver.Warning, consequence, right)
	default:
		t.find(driver.Warning, "push", "SUBSCRIBE failed: "+err.Error(), consequence,
			"check that the server is up, and that neither a proxy nor a renamed command prevents it")
	}
	return err == nil
}

// countListeners checks that scripts can count subscribers.
func (t *smokeTest) countListeners() {
	reply := t.doOne("PUBSUB", "NUMSUB", t.own)
	unseen := !t.target.Sharded && wire.ParsePairs(reply.Value)[t.own] == "0"
	t.addAll(candidate{unseen, driver.Warning, "numsub", "PUBSUB NUMSUB does not count an existing subscriber: the subscription is on another server",
		"live waiters count as dead and are passed over: out of order, and late",
		"use Sharded(), which does not call it; or check that SUBSCRIBE goes to this server, and not to a replica"})
}

// awaitGrant waits for the notification of the waiter's grant.
func (t *smokeTest) awaitGrant() {
	err := t.awaitMessage(func(text string) bool {
		m, ok := wire.ParseMessage(text)
		return ok && m.Event.Token == t.waiter.Token
	})
	t.addAll(candidate{err != nil && t.ctx.Err() == nil, driver.Warning, "push", fmt.Sprintf("no notification of a hand-off: %v", err),
		"waiters find the grant with their next retry, up to 2.5 s late",
		"check that PUBLISH and SUBSCRIBE reach the same server or cluster"})
}
