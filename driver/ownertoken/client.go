package ownertoken

import (
	"strconv"
	"strings"
)

// A Client identifies the client that made a token: host:pid:client.
type Client struct {
	ID   string // the part of the token that all its leases share
	Host string
	PID  int
	Own  string // the last part of ID: it distinguishes clients with one host and process
}

// ClientOf returns the client of a token that dibs made. It returns false for other tokens.
func ClientOf(token string) (Client, bool) {
	const random = 16 // characters of the own part, at least
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

// Label returns the label in a token that dibs made, or "".
func Label(token string) string {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 5 {
		return ""
	}
	return parts[4]
}
