package wire

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func allOf(s *Scripts) []*redisconn.Script {
	return []*redisconn.Script{
		s.Acquire, s.Vote, s.Release, s.Extend, s.Renew, s.ExtendKey, s.Inspect, s.AcquireAll, s.Coalesced, s.Resize, s.Revoke, s.Wanted,
		s.Describe, s.RevokeForeign,
	}
}

// Behind a proxy each key that a script sets expires, the high-water mark too, and no script
// needs a newer server than those of Codis.
func TestProxyScripts(t *testing.T) {
	for _, s := range allOf(proxyScripts()) {
		if !strings.HasPrefix(s.Text, "if redis.replicate_commands then") {
			t.Errorf("a script does not begin with replicate_commands: %.60q", s.Text)
		}
		for line := range strings.Lines(s.Text) {
			_, arguments, sets := strings.Cut(line, "call('SET', ")
			forever := sets && !strings.Contains(arguments, "'PX', ") && !strings.HasPrefix(arguments, "node_key")
			if forever || strings.Contains(line, "'ZPOPMIN'") {
				t.Errorf("line %q", line)
			}
		}
	}
}

// The text that is sent has no comments, which are most of the files.
func TestScriptsHaveNoComments(t *testing.T) {
	for _, s := range allOf(Plain) {
		for line := range strings.Lines(s.Text) {
			if strings.HasPrefix(line, "--") || strings.HasPrefix(line, " ") || line == "\n" {
				t.Fatalf("it is sent with %q", line)
			}
		}
	}
}
