package ownertoken

import (
	"strconv"
	"strings"
)

// A Client identifies a token's maker: host:pid:client.
type Client struct {
	ID   string // the common part in all the client's tokens
	Host string
	PID  int
	Own  string // the last part in ID, which distinguishes clients in the same process
}

// ClientOf returns the client that made a token. It returns false for a token not made by dibs.
func ClientOf(token string) (Client, bool) {
	const random = 16 // the shortest client part, in characters
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 4 || parts[0] == "" || len(parts[2]) < random || parts[3] == "" {
		return Client{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid < 1 {
		return Client{}, false
	}
	return Client{ID: strings.Join(parts[:3], ":"), Host: parts[0], PID: pid, Own: parts[2]}, true
}

// Label returns a token's label, or "".
func Label(token string) string {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 5 {
		return ""
	}
	return parts[4]
}
