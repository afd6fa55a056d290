package mysqlstore

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
)

// maxIdentifier is the longest name of a table or a procedure, in characters.
const maxIdentifier = 64

// CheckPrefix returns an error if the server would reject a prefix of the names of tables and
// procedures. A prefix has up to 51 characters, from U+0001 to U+FFFF. It may be empty. The error
// matches driver.ErrInvalid.
func CheckPrefix(prefix string) error {
	const most = maxIdentifier - len(lastProcedure)
	large := strings.IndexFunc(prefix, func(r rune) bool { return r > 0xffff })
	switch length := utf8.RuneCountInString(prefix); {
	case length > most:
		return fmt.Errorf("%w prefix of the tables: %d characters, want up to %d", driver.ErrInvalid, length, most)
	case !utf8.ValidString(prefix):
		return fmt.Errorf("%w prefix of the tables %q: it is not UTF-8", driver.ErrInvalid, prefix)
	case strings.Contains(prefix, "\x00"):
		return fmt.Errorf("%w prefix of the tables %q: it contains NUL", driver.ErrInvalid, prefix)
	case large >= 0:
		r, _ := utf8.DecodeRuneInString(prefix[large:])
		return fmt.Errorf("%w prefix of the tables %q: %U is larger than U+FFFF", driver.ErrInvalid, prefix, r)
	}
	return nil
}
