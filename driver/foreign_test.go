package driver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// The error shows a part of a foreign token, and never all of it.
func TestWrongTypeErrorShortensTokens(t *testing.T) {
	for token, want := range map[string]string{
		"1": "held by a value with a single character for another 3s", "ok": `held by "o"… for another 3s`,
		"s3cr3t": `held by "s3c"… for another 3s`, "bab04ed2e66211ef9a3b": `held by "bab04ed2"… for another 3s`,
	} {
		err := driver.WrongTypeError{Op: "acquire", Name: "n", State: driver.State{
			Foreign: &driver.Foreign{Key: "n", Type: "zset", Kind: "lock", Lock: true},
			Holders: []driver.Holder{{Token: token, Remaining: 3 * time.Second}},
		}}
		if have := err.Error(); !strings.Contains(have, want) {
			t.Errorf("%s, want %s", have, want)
		}
	}
}
