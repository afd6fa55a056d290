package wire

import (
	"strconv"
	"strings"

	"github.com/dibslock/dibs/redisstore/internal/foreign"
)

// An exclusive lock's value is "fence token" if the token begins with its client: see value.lua. A
// user's own token is the whole value.

// isMadeBy reports whether a client made a token. If so, its lock's value contains the fence.
func isMadeBy(token, client string) bool { return client != "" && foreign.ClientOf(token) == client }

// appendValue writes the value for a lock whose holder has this fence. Zero is an unknown fence.
func appendValue(b []byte, token string, fence uint64) []byte {
	if fence > 0 && foreign.ClientOf(token) != "" {
		b = append(strconv.AppendUint(b, fence, 10), ' ')
	}
	return append(b, token...)
}

// HasFence reports whether a text is a token after a fence.
func HasFence(text string) bool {
	token, _ := foreign.SplitValue(text)
	return token != text
}

// ReservedSuffix follows a released lease's token while its name stays reserved, so that a renewal
// in flight cannot extend it: see release.lua.
const ReservedSuffix = " reserved"

// A storedHolder is the exclusive holder in a lock's value.
type storedHolder struct {
	token    string
	fence    uint64 // zero if the value does not have it
	reserved bool   // the token only reserves the name
}

func parseValue(value string) (h storedHolder) {
	h.token, h.fence = foreign.SplitValue(value)
	h.token, h.reserved = strings.CutSuffix(h.token, ReservedSuffix)
	return h
}
