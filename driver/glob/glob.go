// Package glob matches names with the patterns in driver.Lister. It is for store authors.
package glob

import (
	"fmt"
	"path"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// A Pattern matches names by the rules of driver.Lister. The zero value matches nothing.
type Pattern struct{ pattern string }

// Parse returns driver.ErrInvalid for an invalid pattern.
func Parse(pattern string) (Pattern, error) {
	g := Pattern{flat(pattern)}
	if _, err := path.Match(g.pattern, ""); err != nil {
		return Pattern{}, fmt.Errorf("%w: pattern %q: %w; want *, ?, [a-z], and \\ to quote", driver.ErrInvalid, pattern, err)
	}
	return g, nil
}

// Matches reports whether the pattern matches the whole name.
func (g Pattern) Matches(name string) bool {
	if g.pattern == "*" {
		return true
	}
	matches, err := path.Match(g.pattern, flat(name))
	return matches && err == nil
}

// flat makes a slash an ordinary character, as in names.
func flat(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
