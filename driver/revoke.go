package driver

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxReason is the longest reason of a revocation that a store accepts, in bytes.
const MaxReason = 256

// A Revoker is a Store in which an operator can end a lease of somebody else.
type Revoker interface {
	// Revoke ends the lease that r describes, whoever the caller is, and grants the name
	// to the next waiters. It sends EventRevoked, with the reason, to the holder's client.
	// It returns false, and changes nothing, if the store has no such lease.
	Revoke(ctx context.Context, r RevokeRequest) (bool, error)
}

// A RevokeRequest says which lease to end: that with this fence, or if the fence is zero,
// that with this token. The token is for a lease whose fence the store does not have.
type RevokeRequest struct {
	Name   string
	Fence  uint64
	Token  string
	Reason string // for the holder: one line of at most MaxReason bytes; may be empty
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
