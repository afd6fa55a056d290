package driver

import (
	"fmt"
	"strings"
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
