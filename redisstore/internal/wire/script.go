package wire

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

//go:embed lua/*.lua
var lua embed.FS

// Scripts are the scripts of a store. They never change.
type Scripts struct {
	Acquire, AcquireAll, Vote, Release, Extend, Renew, ExtendKey, Inspect, Coalesced, Resize, Revoke, Wanted, Announce *redisconn.Script
	Describe, RevokeForeign                                                                                            *redisconn.Script // for what dibs did not write
}

// Plain are the scripts of a store whose lock keys are strings.
var Plain = load(func(text string) string { return text })

// A Redisson is the form of locks that Redisson has, in which the lock keys are hashes.
type Redisson struct {
	Sharded bool // the server is a cluster
	Fenced  bool // the fences are the tokens of RFencedLock
}

// Scripts returns the scripts for this form.
func (m Redisson) Scripts() *Scripts { return redissonScripts[m]() }

// redissonScripts are made when they are first used: most programs do not need them.
var redissonScripts = func() map[Redisson]func() *Scripts {
	all := make(map[Redisson]func() *Scripts)
	for _, m := range []Redisson{{}, {Sharded: true}, {Fenced: true}, {Sharded: true, Fenced: true}} {
		all[m] = sync.OnceValue(func() *Scripts { return load(m.adapt) })
	}
	return all
}()

// A Library is one whose waiters are notified when a lock becomes free.
type Library string

// The libraries whose waiters wait for a message.
const (
	Spring          Library = "spring"
	PythonRedisLock Library = "python-redis-lock"
)

// Scripts returns scripts that notify the waiters of a library.
func (l Library) Scripts() *Scripts { return notifyingScripts[l]() }

var notifyingScripts = map[Library]func() *Scripts{
	Spring:          sync.OnceValue(func() *Scripts { return load(Spring.adapt) }),
	PythonRedisLock: sync.OnceValue(func() *Scripts { return load(PythonRedisLock.adapt) }),
}

func (l Library) adapt(text string) string {
	return strings.ReplaceAll(withIncludes("notify"), "'LIBRARY'", "'"+string(l)+"'") + text
}

// redissonLine begins a line that only the scripts for Redisson have.
const redissonLine = "--#redisson "

// adapt makes the text of a script one for Redisson.
func (m Redisson) adapt(text string) string {
	settings := strings.NewReplacer("SHARDED", strconv.FormatBool(m.Sharded), "FENCED", strconv.FormatBool(m.Fenced))
	return settings.Replace(withIncludes("redisson")) + strings.ReplaceAll(text, redissonLine, "")
}

// proxyScripts returns the scripts for servers behind a proxy. They are made when they are
// first used.
var proxyScripts = sync.OnceValue(func() *Scripts {
	return load(func(text string) string { return withIncludes("proxy") + text })
})

// load returns the scripts, changed by adapt.
func load(adapt func(text string) string) *Scripts {
	script := func(name string) *redisconn.Script { return newScript(adapt(withIncludes(name))) }
	return &Scripts{
		Acquire: script("acquire"), AcquireAll: script("acquire_all"), Vote: script("vote"), Release: script("release"),
		Extend: script("extend"), Renew: script("renew"), ExtendKey: script("extend_key"), Inspect: script("inspect"), Coalesced: script("coalesced"),
		Resize: script("resize"), Revoke: script("revoke"), Wanted: script("wanted"), Announce: script("announce"),
		Describe: script("describe"), RevokeForeign: script("revoke_foreign"),
	}
}

func newScript(text string) *redisconn.Script {
	text = withoutComments(text)
	sum := sha1.Sum([]byte(text))
	return &redisconn.Script{Text: text, Hash: hex.EncodeToString(sum[:])}
}

// withIncludes returns a script with the files that it includes.
func withIncludes(name string) string {
	const include = "--#include "
	source, err := lua.ReadFile("lua/" + strings.TrimSuffix(name, ".lua") + ".lua")
	if err != nil {
		panic(err) // a script includes a file that does not exist
	}
	var b strings.Builder
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSpace(line)
		if included, ok := strings.CutPrefix(line, include); ok {
			b.WriteString(withIncludes(included))
		} else {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// withoutComments removes empty lines and lines of comments, so that less is sent to a
// server that does not know the script.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" && !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}
