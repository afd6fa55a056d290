package wire

import (
	"strconv"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

var trial = sync.OnceValue(func() *redisconn.Script { return newScript(minified(readScript("trial"))) })

// WriteKeys returns a command that writes keys with an expiry. Its reply is their number.
func WriteKeys(ttl time.Duration, keys ...string) redisconn.Cmd {
	return redisconn.Cmd{Script: trial(), Whole: true, Keys: keys, Args: []string{strconv.FormatInt(Milliseconds(ttl), 10)}}
}

// DeleteKeys returns a command that deletes keys. Its reply is the number deleted.
func DeleteKeys(keys ...string) redisconn.Cmd {
	return redisconn.Cmd{Script: trial(), Whole: true, Keys: keys, Args: []string{""}}
}
