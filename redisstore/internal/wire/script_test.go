package wire

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func allOf(s *Scripts) []*redisconn.Script {
	return []*redisconn.Script{
		s.Acquire, s.Vote, s.Release, s.Extend, s.ExtendKey, s.Inspect, s.AcquireAll, s.Coalesced, s.Resize, s.Revoke, s.Wanted, s.Announce, s.ReserveFences,
		s.Describe, s.RevokeForeign,
	}
}

// The text sent to a server should be less than half the size of the file.
func TestScriptsAreSmall(t *testing.T) {
	for name, of := range map[string]*Scripts{"plain": Plain(), "proxy": proxyScripts(), "Redisson": redissonScripts(false)} {
		for _, s := range allOf(of) {
			if strings.Contains(s.Text, "--") || strings.Contains(s.Text, "\n\n") || strings.Contains(s.Text, "  ") {
				t.Errorf("%s: a script is sent with comments or spaces: %s", name, s.Text)
			}
		}
	}
}

func TestMinified(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"-- comment\nlocal time = tostring({ 1 }) -- now\nreturn time[1] .. \"-- no comment\"", "local a=tostring({1})return a[1]..\"-- no comment\""},
		{"local heard = { since = 1, last = 2 }\nlocal since = heard.since\nreturn since", "local a={since=1,last=2}local b=a.since return b"},
		{"local a, b = 1, 2\na, b = b, a\nreturn a == b", "local a,b=1,2 a,b=b,a return a==b"},
		{"return 0.4 * 1 .. 'x' .. 2 - -3", "return 0.4*1 ..'x'..2- -3"},
		{"local function add(first, ...)\nreturn first + select('#', ...)\nend\nfor _, v in ipairs({ 1 }) do add(v) end", "local function a(b,...)return b+select('#',...)end for d,c in ipairs({1})do a(c)end"},
		{"local type = type\nlocal s = 'it\\'s'\nreturn type(s)", "local type=type local a='it\\'s'return type(a)"},
	} {
		tokens := luaTokens(c.text)
		if have := strings.TrimSuffix(rewritten(tokens, shortNames(tokens)), "\n"); have != c.want {
			t.Errorf("%s\nhave %s\nwant %s", c.text, have, c.want)
		}
	}
}

// All globals in a script should be known. Otherwise a local name elsewhere could replace a global.
func TestGlobalsOfScripts(t *testing.T) {
	files, err := lua.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tokens := luaTokens(readScript(strings.TrimSuffix(file.Name(), ".lua")))
		for i, token := range tokens {
			_, isLocal := scriptNames()[token]
			if isName(token) && !isLocal && !isField(tokens, i) && !luaGlobals[token] && token != "SHARDED" {
				t.Errorf("%s uses %s: add it to luaGlobals", file.Name(), token)
			}
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		load("", nil)
	}
}
