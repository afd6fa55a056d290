package waitgraph

import (
	"fmt"
	"strconv"
	"strings"
)

// A client is what a token says of the client that made it.
type client struct {
	key  string // host:pid:client
	host string
	pid  int
	id   string
}

// parseClient parses a token of dibs: host:pid:client:lease, optionally with a label.
func parseClient(token string) (client, bool) {
	const random, shown = 16, 4 // characters of client: at least, and in the id
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 4 || parts[0] == "" || len(parts[2]) < random || parts[3] == "" {
		return client{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid < 1 {
		return client{}, false
	}
	return client{strings.Join(parts[:3], ":"), parts[0], pid, parts[2][:shown]}, true
}

// String returns host and process, and the ID if another client has the same ones.
func (p Process) String() string {
	text := fmt.Sprintf("%s:%d", p.Host, p.PID)
	if p.twin {
		text += "/" + p.ID
	}
	return text
}
