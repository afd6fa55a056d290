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

// plain contains Plain's scripts, which are composed from lua by go test -update.
//
//go:embed plain/*.lua
var plain embed.FS

// Scripts are a store's scripts. They never change.
type Scripts struct {
	Acquire, AcquireAll, Vote, Release, Extend, ExtendKey, Inspect, Coalesced, Resize, Revoke, Wanted, Announce *redisconn.Script
	ReserveFences                                                                                               *redisconn.Script
	Describe, RevokeForeign                                                                                     *redisconn.Script // for foreign values
}

// Plain returns the scripts for a store with string lock keys. Composing them takes several
// milliseconds: too long for a program that acquires a lock and exits.
var Plain = sync.OnceValue(func() *Scripts {
	return scriptsOf(func(name string) string { return read(plain, "plain", name) })
})

// redissonScripts returns the scripts for locks in Redisson's form, in which lock keys are hashes.
// They are composed on first use: most programs do not need them.
func redissonScripts(sharded bool) *Scripts {
	if sharded {
		return shardedRedissonScripts()
	}
	return singleRedissonScripts()
}

var (
	singleRedissonScripts  = sync.OnceValue(func() *Scripts { return loadRedisson(false) })
	shardedRedissonScripts = sync.OnceValue(func() *Scripts { return loadRedisson(true) })
)

// redissonLine begins a line that only Redisson scripts contain.
const redissonLine = "--#redisson "

func loadRedisson(sharded bool) *Scripts {
	return load("redisson", strings.NewReplacer("SHARDED", strconv.FormatBool(sharded), redissonLine, ""))
}

// proxyScripts returns the scripts for servers behind a proxy. They are made when they are
// first used.
var proxyScripts = sync.OnceValue(func() *Scripts { return load("proxy", nil) })

// load returns the scripts. A file may be before each, and its settings are replaced in all.
func load(before string, settings *strings.Replacer) *Scripts {
	c := composer{settings: settings, files: make(map[string]string)}
	prefix := ""
	if before != "" {
		prefix = c.file(before)
	}
	return scriptsOf(func(name string) string { return prefix + c.file(name) })
}

// scriptsOf returns the scripts with these texts.
func scriptsOf(text func(name string) string) *Scripts {
	script := func(name string) *redisconn.Script { return newScript(text(name)) }
	return &Scripts{
		Acquire: script("acquire"), AcquireAll: script("acquire_all"), Vote: script("vote"), Release: script("release"),
		Extend: script("extend"), ExtendKey: script("extend_key"), Inspect: script("inspect"), Coalesced: script("coalesced"),
		Resize: script("resize"), Revoke: script("revoke"), Wanted: script("wanted"), Announce: script("announce"),
		ReserveFences: script("fences"),
		Describe:      script("describe"), RevokeForeign: script("revoke_foreign"),
	}
}

func newScript(text string) *redisconn.Script {
	sum := sha1.Sum([]byte(text))
	return &redisconn.Script{Text: text, Hash: hex.EncodeToString(sum[:])}
}

// A composer composes the scripts' text.
type composer struct {
	settings *strings.Replacer // or nil
	files    map[string]string // already composed
}

// file returns a file with its includes, minified.
func (c composer) file(name string) string {
	if text, ok := c.files[name]; ok {
		return text
	}
	var b, own strings.Builder
	flush := func() {
		b.WriteString(minified(own.String()))
		own.Reset()
	}
	source := readScript(name)
	if c.settings != nil {
		source = c.settings.Replace(source)
	}
	for line := range strings.Lines(source) {
		included, ok := strings.CutPrefix(strings.TrimSpace(line), "--#include ")
		if !ok {
			own.WriteString(line)
			continue
		}
		flush()
		b.WriteString(c.file(strings.TrimSuffix(included, ".lua")))
	}
	flush()
	c.files[name] = b.String()
	return c.files[name]
}

func readScript(name string) string { return read(lua, "lua", name) }

func read(files embed.FS, dir, name string) string {
	source, err := files.ReadFile(dir + "/" + name + ".lua")
	if err != nil {
		panic(err) // a script includes a missing file
	}
	return string(source)
}
