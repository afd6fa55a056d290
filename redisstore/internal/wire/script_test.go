package wire

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// The text that is sent has no comments, which are most of the files.
func TestScriptsHaveNoComments(t *testing.T) {
	for _, s := range []*redisconn.Script{AcquireScript, VoteScript, ReleaseScript, ExtendScript, ExtendKeyScript, InspectScript, AcquireAllScript, CoalescedScript, ResizeScript, RevokeScript, DescribeScript, RevokeForeignScript} {
		for line := range strings.Lines(s.Text) {
			if strings.HasPrefix(line, "--") || strings.HasPrefix(line, " ") || line == "\n" {
				t.Fatalf("it is sent with %q", line)
			}
		}
	}
}
