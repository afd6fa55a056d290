package redisstore

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
)

// A duty is what a user needs rights for, and what happens without them. A probe is a
// command that shows whether the user may send it, and changes nothing: a server looks
// at the rights before it looks at the arguments. In it, lock, queue, meta and highwater
// stand for the keys of a name that nobody uses, channel for one that nobody hears.
type permission struct {
	severity    Severity
	consequence string
	probes      []string
}

// duties are all commands of the scripts, and those around them.
func (s *Store) permissions() []permission {
	locking := permission{Critical, "names cannot be locked, or handed on, or released", []string{
		"EVAL return 0", "EVALSHA none 0", "TIME",
		"EXISTS lock", "GET lock", "SET lock x none", "DEL lock", "PTTL lock", "PEXPIRE lock none",
		"ZADD queue none m", "ZCARD queue", "ZCOUNT queue 0 0", "ZSCORE queue m", "ZRANK queue m", "ZRANGE queue 0 0",
		"ZRANGEBYSCORE queue 0 0", "ZREM queue m", "ZPOPMIN queue",
		"HGET meta f", "HSET meta f x none", "HDEL meta f", "HEXISTS meta f",
		"GET highwater", "SET highwater x none",
	}}
	if s.copies != nil {
		locking.probes = append(locking.probes, "WAIT 0 1")
	}
	watching := permission{Warning, "waiters whose process is dead are not passed over: each costs the others up to 5 s", []string{"PUBSUB|NUMSUB channel"}}
	if s.sharded {
		watching = permission{Warning, "a failover is not noticed by itself: who holds a lock that it forgot learns of it at the next renewal, and who waits on that server may ask late", []string{"CLUSTER|INFO"}}
	}
	return []permission{
		locking,
		watching,
		{Warning, "nobody is told of a hand-off: each waiter has to find out by asking", []string{publish}},
		{Note, "List does not work; locks do", []string{"SCAN 0 COUNT 1"}},
	}
}

const publish = "PUBLISH channel dibs"

func (e *exam) tryPermissions() {
	if user, ok := e.ask("ACL", "WHOAMI").Value.(string); ok {
		e.user = user
	}
	prefix := quote(e.store.prefix)
	k := e.store.appendKeys(nil, "dibs:doctor:"+rand.Text()) // without a hash tag, so that its keys differ in form
	lock, queue, meta, highwater, _ := k.cut(string(k.text))
	stands := map[string]string{"lock": lock, "queue": queue, "meta": meta, "highwater": highwater, "channel": channel + "doctor"}
	patterns := map[string]string{"lock": prefix + "*", "queue": "{" + prefix + "*}:dibs:*", "meta": "{" + prefix + "*}:dibs:*", "highwater": fencePrefix + "*"}
	for _, d := range e.store.permissions() {
		cmds := make([]Cmd, len(d.probes))
		for i, probe := range d.probes {
			command, args, _ := strings.Cut(probe, " ")
			cmds[i] = append(strings.Split(command, "|"), strings.Fields(args)...)
			for j, arg := range cmds[i] {
				cmds[i][j] = cmp.Or(stands[arg], arg)
			}
		}
		var lacking []string
		for i, reply := range e.do(cmds...) {
			words := append(strings.Fields(d.probes[i]), "") // TIME has no key
			right := lacks(strings.ToLower(words[0]), patterns[words[1]], reply.Err)
			if right != "" && !slices.Contains(lacking, right) {
				lacking = append(lacking, right)
			}
		}
		e.lack(d.severity, d.consequence, lacking...)
		e.mute = e.mute || len(lacking) > 0 && d.probes[0] == publish
	}
}

// lacks returns the right that is missing by a reply, as ACL SETUSER has it.
func lacks(command, pattern string, err error) (right string) {
	var server ServerError
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
		return "&" + channel + "*"
	case strings.Contains(text, "access"):
		return "~" + pattern
	}
	return "+" + command
}

func (e *exam) lack(severity Severity, consequence string, rights ...string) {
	list := strings.Join(rights, " ")
	e.each(row{list != "", severity, "acl", fmt.Sprintf("user %s lacks %s, or the server has no such command", e.user, list),
		consequence,
		fmt.Sprintf("ACL SETUSER %s %s", e.user, list)})
}

// A trial is one lock that is taken, waited for and handed on.
type trial struct {
	*exam
	name   string
	own    string // the channel of the client
	holder driver.AcquireRequest
	waiter driver.AcquireRequest
	pushes chan string
	ended  chan error // why nothing is heard any more
}

// tryALock proves what settings and rights only promise.
func (e *exam) tryALock() {
	name, ok := e.trialName()
	if !ok {
		return
	}
	client := "doctor:0:" + rand.Text()
	claim := func(seq uint64) driver.AcquireRequest {
		return driver.AcquireRequest{
			Name: name, Token: fmt.Sprintf("%s:%d", client, seq), Client: client, Seq: seq,
			TTL: driver.WaiterTTL, Weight: 1, Limit: 1, Queue: true,
		}
	}
	t := &trial{exam: e, name: name, own: channel + client, holder: claim(1), waiter: claim(2), pushes: make(chan string, 16), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	go func() {
		t.ended <- e.store.conn.Subscribe(ctx, t.own, func(text string) {
			select {
			case t.pushes <- text:
			default:
			}
		})
	}()
	if err := t.handOff(); err != nil {
		t.reportFailure(err)
		t.cleanUp()
	}
}

// trialName returns a name of this node, random but for its slot: each slot that a
// lock was ever in keeps a highwater, and this makes it the same one each time.
func (e *exam) trialName() (string, bool) {
	const enough = 256 // to meet a master that has its share of the slots
	names, cmds := make([]string, enough), make([]Cmd, enough)
	for n := range names {
		names[n] = fmt.Sprintf("{%d}:dibs:doctor:%s", n, rand.Text())
		cmds[n] = Cmd{"EXISTS", e.store.prefix + names[n]}
	}
	for n, reply := range e.do(cmds...) {
		var server ServerError
		if !errors.As(reply.Err, &server) || !strings.HasPrefix(string(server), "MOVED") && !strings.HasPrefix(string(server), "ASK") {
			return names[n], true
		}
	}
	if !tagged(e.store.prefix) { // which puts all names on one node
		e.failed["a trial"] = fmt.Errorf("none of %d names is in the slots of this node", enough)
		e.miss("a trial", "whether locks work")
	}
	return "", false
}

// handOn does all that happens to a lock, and says what failed.
func (t *trial) handOff() error {
	listens := t.listens()
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
	if listens && !t.mute {
		t.subscribe()
	}
	if err := t.acquire(t.waiter, true); err != nil {
		return err
	}
	return t.release(t.waiter)
}

func (t *trial) acquire(c driver.AcquireRequest, held bool) error {
	answer, err := t.store.Acquire(t.ctx, c)
	if err == nil && answer.Held != held {
		err = fmt.Errorf("a claim was answered %v to whether it holds, instead of %v", answer.Held, held)
	}
	return err
}

func (t *trial) extend() error {
	ctx, cancel := context.WithTimeout(t.ctx, operation)
	defer cancel()
	return t.store.Extend(ctx, []driver.ExtendRequest{{Name: t.name, Token: t.holder.Token, Client: t.holder.Client, TTL: t.holder.TTL}})[0]
}

func (t *trial) release(c driver.AcquireRequest) error {
	held, err := t.store.Release(t.ctx, driver.ReleaseRequest{Name: t.name, Token: c.Token})
	if err == nil && !held {
		err = errors.New("a lock that was just taken is not held any more")
	}
	return err
}

// tell makes a finding of a trial that has failed.
func (t *trial) reportFailure(err error) {
	if t.ctx.Err() != nil {
		return // that Doctor was cut short is told
	}
	var few *ReplicasError
	short, text := errors.As(err, &few), err.Error()
	remedy := "see the other findings, and what the error says"
	if strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") {
		remedy = "give the client the right user and password"
	}
	t.each(
		row{short, Critical, "replicas", text,
			"each acquire is given back, and each renewal counts as not answered",
			"see INFO replication; start replicas, or ask WithReplicas for fewer or for longer"},
		row{!short, Critical, "lock", "a lock on a random name failed: " + text,
			"so will others",
			remedy},
	)
}

// cleanUp undoes the claims, also when ctx has ended: nobody waits for it then.
func (t *trial) cleanUp() {
	for _, c := range []driver.AcquireRequest{t.waiter, t.holder} {
		c.Until = time.Now().Add(operation)
		_ = t.store.Cancel(context.WithoutCancel(t.ctx), c) // else they end by themselves
	}
}

// await waits for a push, and says why it did not come.
func (t *trial) await(is func(text string) bool) error {
	ctx, cancel := context.WithTimeoutCause(t.ctx, operation, fmt.Errorf("nothing came within %v", operation))
	defer cancel()
	for {
		select {
		case text := <-t.pushes:
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

// listens waits until the subscription is confirmed.
func (t *trial) listens() bool {
	const consequence = "waiters are told nothing, and poll: ten times a second each, and late by as much"
	err := t.await(func(text string) bool { return text == "" })
	right := lacks("subscribe", "", err)
	switch {
	case err == nil:
		t.countListeners()
	case t.ctx.Err() != nil: // that Doctor was cut short is told
	case right != "":
		t.lack(Warning, consequence, right)
	default:
		t.find(Warning, "push", "SUBSCRIBE failed: "+err.Error(), consequence,
			"see that the server it went to is up, and that no proxy and no renamed command is in its way")
	}
	return err == nil
}

// countListeners checks that scripts can see who listens.
func (t *trial) countListeners() {
	reply := t.ask("PUBSUB", "NUMSUB", t.own)
	unseen := !t.store.sharded && pairs(reply.Value)[t.own] == "0"
	t.each(row{unseen, Warning, "numsub", "PUBSUB NUMSUB does not count a subscriber that is there: it listens on another server",
		"waiters who are alive are taken for dead and passed over: out of order, and late",
		"use Sharded(), which does not ask; or see that SUBSCRIBE reaches this server, and no replica"})
}

// hear waits for the message that the waiter has been granted the name.
func (t *trial) subscribe() {
	err := t.await(func(text string) bool {
		event, ok := t.store.parseMessage(text)
		return ok && event.Token == t.waiter.Token
	})
	t.each(row{err != nil && t.ctx.Err() == nil, Warning, "push", fmt.Sprintf("a hand-off was not told: %v", err),
		"waiters find out by asking, up to 2.5 s late",
		"see that PUBLISH and SUBSCRIBE reach the same server or cluster"})
}
