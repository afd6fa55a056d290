package driver

import (
	"fmt"
	"unicode/utf8"
)

// CheckName returns ErrInvalid unless the name is valid: non-empty UTF-8, at most MaxName bytes
// long.
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
