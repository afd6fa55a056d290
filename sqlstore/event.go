package sqlstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// ParseEvent reads a message from the procedure notify. age returns the time since an instant on
// the server's clock.
//
//	g FENCE TICKET TIME TOKEN    granted
//	r TOKEN                      retry
//	w TOKEN                      a request waits
//	x FENCE REASON\nTOKEN        revoked; a reason is one line
func ParseEvent(message string, age func(at int64) time.Duration) (driver.Event, bool) {
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "g":
		return parseGranted(rest, age)
	case "r":
		return driver.Event{Kind: driver.EventRetry, Token: rest}, rest != ""
	case "w":
		return driver.Event{Kind: driver.EventWanted, Token: rest}, rest != ""
	case "x":
		number, rest, _ := strings.Cut(rest, " ")
		reason, token, whole := strings.Cut(rest, "\n")
		fence, err := strconv.ParseUint(number, 10, 64)
		return driver.Event{Kind: driver.EventRevoked, Fence: fence, Token: token, Reason: reason}, whole && err == nil
	default:
		return driver.Event{}, false
	}
}

func parseGranted(text string, age func(at int64) time.Duration) (driver.Event, bool) {
	f := strings.SplitN(text, " ", 4)
	if len(f) != 4 {
		return driver.Event{}, false
	}
	fence, err1 := strconv.ParseUint(f[0], 10, 64)
	ticket, err2 := strconv.ParseUint(f[1], 10, 64)
	sent, err3 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return driver.Event{}, false
	}
	return driver.Event{Kind: driver.EventGranted, Fence: fence, Ticket: ticket, Token: f[3], Age: age(sent)}, true
}
