package driver

import (
	"fmt"
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

// CheckRevoke returns an ErrInvalid unless a lease can be revoked with these arguments.
// They must be a valid name, a fence, and as the reason one line of printable UTF-8 of at
// most MaxReason bytes. The reason may be empty.
func CheckRevoke(name string, fence uint64, reason string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	switch {
	case fence == 0:
		return invalidRequest("revoke %q: fence 0", name)
	case len(reason) > MaxReason:
		return invalidRequest("revoke %q: reason of %d bytes: more than %d", name, len(reason), MaxReason)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalidRequest("revoke %q: reason %q: want one line of printable UTF-8", name, reason)
	}
	return nil
}

func invalidRequest(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// LabelOf returns the label in a token that dibs made, or "".
func LabelOf(token string) string {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 5 {
		return ""
	}
	return parts[4]
}
