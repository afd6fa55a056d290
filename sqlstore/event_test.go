package sqlstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

func TestParseEvent(t *testing.T) {
	t.Parallel()
	age := func(at int64) time.Duration { return time.Duration(at) }
	for message, want := range map[string]driver.Event{
		"g 7 8 9 a token":    {Kind: driver.EventGranted, Fence: 7, Ticket: 8, Age: 9, Token: "a token"},
		"r a token":          {Kind: driver.EventRetry, Token: "a token"},
		"w a token":          {Kind: driver.EventWanted, Token: "a token"},
		"x 7 one line\na\nb": {Kind: driver.EventRevoked, Fence: 7, Reason: "one line", Token: "a\nb"},
		"x 7 \ntoken":        {Kind: driver.EventRevoked, Fence: 7, Token: "token"},
	} {
		if have, ok := sqlstore.ParseEvent(message, age); !ok || have != want {
			t.Errorf("%q: %+v, %v, want %+v", message, have, ok, want)
		}
	}
	for _, message := range []string{"", "g", "g 1 2 3", "g 1 2 x t", "g -1 2 3 t", "r", "r ", "w", "w ", "x", "x 7 no token", "x y z\nt", "y 1"} {
		if have, ok := sqlstore.ParseEvent(message, age); ok {
			t.Errorf("%q: %+v, want no event", message, have)
		}
	}
}
