package doctor

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A proxy in front of several servers sends a script to the server for its first key. This check
// proves where keys are: a script writes several keys, and then each key is looked for separately.
// The keys expire if the check is interrupted.
const (
	trialNames = 500 // in a script; on two equal servers, all share a server by chance in 1 in 2^499 trials
	trialTags  = 100 // names whose keys are tried in Proxy mode
	trialTTL   = 30 * time.Second
)

const (
	proxySettings = `twemproxy needs hash_tag: "{}", Envoy enable_hashtagging: true; Codis does that always`
	perServer     = "run dibs doctor on each server behind the proxy, with its own address and the same prefix"
)

// checkRouting reports where keys are. done means that there is a proxy: the other checks would be
// about the proxy, or about only one server behind it.
func (e *nodeCheck) checkRouting() (done bool) {
	switch {
	case e.target.Sharded:
		return false // a cluster client finds the servers itself
	case e.target.Proxy:
		e.checkTags()
		if e.unreachable != nil {
			return false
		}
		e.checkLocking()
	case !e.separatesNamesTwice():
		return false
	default:
		e.Find(checkup.Critical, "routing", "unsafe: keys that one script has written are not found by themselves. A proxy is in front of several servers, and sends a script to the server of its first key",
			"two clients hold a name at once: a request for several names acquires all of them on the server of the first one",
			"use the option Proxy (in a URL: proxy=true) on all clients, and have the proxy route by hash tags ("+proxySettings+"); docs/redis.md has more")
	}
	e.Find(checkup.Unchecked, "servers", "a proxy hides its servers",
		"not checked: role, version, memory, persistence, replication, permissions, keys and clock of each server", perServer)
	return true
}

// separatesNamesTwice tries it again, in case the server lost the keys.
func (e *nodeCheck) separatesNamesTwice() bool {
	for range 2 {
		if !e.separatesNames() {
			return false
		}
	}
	return true
}

// separatesNames reports whether names written together are on different servers. Without a reply
// it reports false: then no lock works, which is another finding.
func (e *nodeCheck) separatesNames() bool {
	keys := make([]string, trialNames)
	for i := range keys {
		keys[i] = e.target.Prefix + "dibs:doctor:" + rand.Text()
	}
	if !e.awaitScripts(keys[0]) {
		return false
	}
	written := e.do(wire.WriteKeys(trialTTL, keys...))[0]
	e.answersScripts = e.answersScripts || written.Err == nil
	e.refusesSlots = isCrossSlot(written.Err)
	if written.Err != nil {
		return false
	}
	lost := e.countLost(keys)
	e.do(wire.DeleteKeys(keys...)) // to the same server as the first key
	return lost > 0
}

// awaitScripts reports whether scripts work. The first script is short: a server ends the
// connection if a user without a password sends a long command. It is repeated for a while, since
// Codis fails for a moment after HELLO 3, go-redis' first command.
func (e *nodeCheck) awaitScripts(key string) bool {
	const tries, pause = 20, 50 * time.Millisecond
	for range tries {
		err := e.do(wire.WriteKeys(trialTTL, key))[0].Err
		if !redisconn.HasCode(err, "ERR handle") {
			return err == nil
		}
		select {
		case <-time.After(pause):
		case <-e.Ctx.Done():
			return false
		}
	}
	return false
}

// isCrossSlot reports whether a server refused keys in different slots. Some proxies in front of a
// cluster use other error texts.
func isCrossSlot(err error) bool {
	return redisconn.HasCode(err, "CROSSSLOT") || redisconn.HasCode(err, "ERR") && strings.Contains(err.Error(), "same slot")
}

// countLost deletes keys, each separately, and returns how many were not there.
func (e *nodeCheck) countLost(keys []string) (lost int) {
	e.each(keys, func(key string) redisconn.Cmd { return wire.DeleteKeys(key) }, func(_ string, r redisconn.Reply) {
		if r.Err == nil && r.Value != int64(1) {
			lost++
		}
	})
	return lost
}

// checkTags checks in Proxy mode that the keys of each name are together.
func (e *nodeCheck) checkTags() {
	format := wire.Format{Prefix: e.target.Prefix, Proxy: true}
	var names []wire.Keys
	var cmds []redisconn.Cmd
	for i := range trialTags {
		name := "dibs:doctor:" + rand.Text()
		if i%2 == 0 {
			name = "{" + strconv.Itoa(i) + rand.Text() + "}:dibs:doctor"
		}
		k := format.Keys(name)
		names, cmds = append(names, k), append(cmds, wire.WriteKeys(trialTTL, keysOf(k)...))
	}
	if slices.ContainsFunc(e.do(cmds...), func(r redisconn.Reply) bool { return r.Err != nil }) {
		return // the trial lock reports the reason
	}
	lost := 0
	for _, k := range names {
		if e.countLost(keysOf(k)) > 0 {
			lost++
		}
	}
	for i := range cmds {
		cmds[i] = wire.DeleteKeys(cmds[i].Keys...)
	}
	e.do(cmds...)
	e.AddAll(checkup.If(lost > 0, checkup.Critical, "routing", fmt.Sprintf("unsafe: the proxy does not route by hash tags: keys of %d of %d names are on different servers", lost, len(names)),
		"two clients hold a name at once if one of them locks it together with other names; and the states that are shown are wrong",
		"have the proxy route by hash tags: "+proxySettings))
}

func keysOf(k wire.Keys) []string {
	return []string{k.Lock, k.Queue, k.Meta, k.Highwater, k.Holders}
}

// reportClosing reports that a server ran scripts but ended the connection at INFO.
func (e *nodeCheck) reportClosing() {
	e.Find(checkup.Warning, "proxy", fmt.Sprintf("scripts work, but INFO ended the connection: %v. A proxy is in front, with one server behind it", e.unreachable),
		"each try to subscribe ends a connection, too, and waiters poll; with a second server behind the proxy, two clients could hold a name at once",
		"use the option Proxy (in a URL: proxy=true) on all clients; and "+perServer)
}
