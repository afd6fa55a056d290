package driver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName returns an ErrInvalid unless the name is valid: non-empty UTF-8 of at most
// MaxName bytes.
func CheckName(name string) error {
	switch {
	case name == "":
		return invalidRequest("empty name")
	case len(name) > MaxName:
		return invalidRequest("name %q… of %d bytes: more than %d", name[:16], len(name), MaxName)
	case !utf8.ValidString(name):
		return invalidRequest("name %q: not UTF-8", name)
	}
	return nil
}

// CheckRevoke returns an ErrInvalid unless the request is valid. It must have a valid name,
// a fence or a token but not both, and as the reason one line of printable UTF-8 of at most
// MaxReason bytes. The reason may be empty.
func CheckRevoke(r RevokeRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	switch {
	case r.Fence == 0 && r.Token == "":
		return invalidRequest("revoke %q: fence 0", r.Name)
	case r.Fence != 0 && r.Token != "":
		return invalidRequest("revoke %q: both a fence and a token", r.Name)
	case len(r.Reason) > MaxReason:
		return invalidRequest("revoke %q: reason of %d bytes: more than %d", r.Name, len(r.Reason), MaxReason)
	case !utf8.ValidString(r.Reason) || strings.ContainsFunc(r.Reason, func(c rune) bool { return !unicode.IsPrint(c) }):
		return invalidRequest("revoke %q: reason %q: want one line of printable UTF-8", r.Name, r.Reason)
	}
	return nil
}

func invalidRequest(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// A Client is what a token says of the client that made it: host:pid:client.
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

// LabelOf returns the label in a token that dibs made, or "".
func LabelOf(token string) string {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 5 {
		return ""
	}
	return parts[4]
}
