package wire

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// The text that is sent has no comments, which are most of the files.
func TestScriptsHaveNoComments(t *testing.T) {
	for _, s := range []*redisconn.Script{Plain.Acquire, Plain.Vote, Plain.Release, Plain.Extend, Plain.Renew, Plain.ExtendKey, Plain.Inspect, Plain.AcquireAll, Plain.Coalesced, Plain.Resize, Plain.Revoke, Plain.Wanted, Plain.Describe, Plain.RevokeForeign} {
		for line := range strings.Lines(s.Text) {
			if strings.HasPrefix(line, "--") || strings.HasPrefix(line, " ") || line == "\n" {
				t.Fatalf("it is sent with %q", line)
			}
		}
	}
}
