package redisconn

import (
	"context"
	"fmt"
	"strings"
)

// Unexpected is the error for an undocumented reply.
func Unexpected(v any) error {
	text := fmt.Sprintf("%v", v)
	return fmt.Errorf("unexpected reply %.100q", text)
}

// Run sends a single command to a server.
func (n Node) Run(ctx context.Context, words ...string) Reply {
	var reply [1]Reply
	n.Do(ctx, []Cmd{Command(words...)}, reply[:])
	return reply[0]
}

// page is how many keys the server examines in a scan step: about 0.5 ms for keys without a match.
// The server can serve other clients between two steps.
const page = "1000"

// Scan calls the function on for each key on a server that matches a glob. It can report a key
// twice. The server sends only these keys, but examines all keys.
func (n Node) Scan(ctx context.Context, match string, on func(key string)) error {
	for cursor := "0"; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reply := n.Run(ctx, "SCAN", cursor, "MATCH", match, "COUNT", page)
		if reply.Err != nil {
			return reply.Err
		}
		var keys []any
		pair, _ := reply.Value.([]any)
		ok := len(pair) == 2
		if ok {
			cursor, ok = pair[0].(string)
		}
		if ok {
			keys, ok = pair[1].([]any)
		}
		if !ok {
			return Unexpected(reply.Value)
		}
		for _, key := range keys {
			if text, ok := key.(string); ok {
				on(text)
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// Quote escapes a text so that it matches itself in a glob.
func Quote(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}
