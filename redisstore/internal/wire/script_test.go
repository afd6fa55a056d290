package wire

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func allOf(s *Scripts) []*redisconn.Script {
	return []*redisconn.Script{
		s.Acquire, s.Vote, s.Release, s.Extend, s.Renew, s.ExtendKey, s.Inspect, s.AcquireAll, s.Coalesced, s.Resize, s.Revoke, s.Wanted, s.Announce,
		s.Describe, s.RevokeForeign,
	}
}

// The text that is sent has no comments, which are most of the files.
func TestScriptsHaveNoComments(t *testing.T) {
	for _, s := range append(allOf(Plain), allOf(proxyScripts())...) {
		for line := range strings.Lines(s.Text) {
			if strings.HasPrefix(line, "--") || strings.HasPrefix(line, " ") || line == "\n" {
				t.Fatalf("it is sent with %q", line)
			}
		}
	}
}
