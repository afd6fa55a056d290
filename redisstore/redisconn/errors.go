package redisconn

import (
	"errors"
	"slices"
	"strings"
)

// transientCodes are the codes of errors that can pass soon. The last four mean a failover or a
// slot migration.
var transientCodes = []string{"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "READONLY", "MOVED", "ASK", "NOREPLICAS"}

// Full is in the error text from a server without room for another connection.
const Full = "max number of clients reached"

// Transient reports whether a retry may succeed soon. An error that a script caught and raised
// again starts with ERR, before its code. Before Redis 7, an error inside a script is in the middle
// of another error's text.
func (e ServerError) Transient() bool {
	text := string(e)
	bare := strings.TrimPrefix(text, "ERR ")
	return slices.ContainsFunc(transientCodes, func(code string) bool {
		return strings.HasPrefix(bare, code) || strings.Contains(text, "-"+code+" ")
	})
}

// HasCode reports whether err is an error reply with a code at its start, such as NOSCRIPT.
func HasCode(err error, code string) bool {
	if err == nil {
		return false
	}
	var server ServerError
	return errors.As(err, &server) && strings.HasPrefix(string(server), code)
}
