package mysqlstore

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
)

// maxIdentifier is the longest name for a table or a procedure, in characters.
const maxIdentifier = 64

// longestName is the longest procedure name, with a version.
const longestName = "remove_unused_v99"

// CheckTablePrefix returns an error if the server would reject a prefix for the tables' and
// procedures' names. A prefix contains up to 47 characters, from U+0001 to U+FFFF. It can be empty.
// The error matches driver.ErrInvalid.
func CheckTablePrefix(prefix string) error {
	const most = maxIdentifier - len(longestName)
	length, problem := utf8.RuneCountInString(prefix), ""
	switch {
	case length > most:
		problem = fmt.Sprintf("%d characters, want up to %d", length, most)
	case !utf8.ValidString(prefix):
		problem = "it is not UTF-8"
	case strings.ContainsFunc(prefix, func(r rune) bool { return r == 0 || r > 0xffff }):
		problem = "it contains NUL or a character after U+FFFF"
	}
	if problem != "" {
		return fmt.Errorf("%w prefix of the tables: %s", driver.ErrInvalid, problem)
	}
	return nil
}
