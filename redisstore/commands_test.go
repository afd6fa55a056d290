package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// An uncontended pair reads the server's clock once, or twice with a reusable token.
func TestCommandsOfAPair(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		options []dibs.Option
		times   int
		records int // for a client that is not in the token
	}{
		"token of dibs":       {nil, 1, 0},
		"token of the caller": {[]dibs.Option{dibs.OwnerToken("request-1")}, 2, 1},
	} {
		t.Run(what, func(t *testing.T) {
			server := redistest.Start(t)
			locks := dibs.New(open(t, server))
			defer locks.Close()
			pair := func() {
				l, err := locks.Mutex("n").Lock(t.Context(), test.options...)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(); err != nil {
					t.Fatal(err)
				}
			}
			pair() // loads the scripts and reads the clock
			server.MustCmd(t, "CONFIG", "RESETSTAT")
			const pairs = 10
			for range pairs {
				pair()
			}
			stats, _ := server.MustCmd(t, "INFO", "commandstats").(string)
			for name, times := range map[string]int{"evalsha": 2, "time": test.times, "exists": 1, "set": 2, "get": 1, "zpopmin": 1, "del": 1, "hset": test.records, "pexpire": test.records} {
				if want := fmt.Sprintf("cmdstat_%s:calls=%d,", name, times*pairs); times > 0 && !strings.Contains(stats, want) {
					t.Errorf("want %s in\n%s", want, stats)
				}
			}
		})
	}
}
