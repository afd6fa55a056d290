package driver

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxReason is the longest reason for a revocation, in bytes.
const MaxReason = 256

// A Revoker is a Store in which an operator can end another client's lease.
type Revoker interface {
	// Revoke ends the lease that r describes, whoever the caller is, and grants the name to the
	// next waiters. It sends EventRevoked with the reason to the holder's client. It returns false,
	// and changes nothing, if there is no such lease.
	Revoke(ctx context.Context, r RevokeRequest) (bool, error)
}

// A RevokeRequest selects the lease to end: by Fence or, if Fence is zero, by Token. Use Token if
// the store did not record the lease's fence.
type RevokeRequest struct {
	Name   string
	Fence  uint64
	Token  string
	Reason string // for the holder: a line of at most MaxReason bytes; may be empty
}

// CheckRevoke returns ErrInvalid unless the request is valid. A valid request contains a valid
// name, and either a fence or a token, but not both. Its reason is empty, or a single line of
// printable UTF-8, at most MaxReason bytes long.
func CheckRevoke(r RevokeRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	switch {
	case r.Fence == 0 && r.Token == "":
		return invalidRequest("revoke %q: neither a fence nor a token", r.Name)
	case r.Fence != 0 && r.Token != "":
		return invalidRequest("revoke %q: both a fence and a token", r.Name)
	case len(r.Reason) > MaxReason:
		return invalidRequest("revoke %q: reason of %d bytes: more than %d", r.Name, len(r.Reason), MaxReason)
	case !utf8.ValidString(r.Reason) || strings.ContainsFunc(r.Reason, func(c rune) bool { return !unicode.IsPrint(c) }):
		return invalidRequest("revoke %q: reason %q: want one line of printable UTF-8", r.Name, r.Reason)
	}
	return nil
}
