// Package glob matches names with the patterns of driver.Lister. It is for authors of stores.
package glob

import (
	"fmt"
	"path"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// A Pattern is a pattern of names, with the rules of driver.Lister. The zero value matches nothing.
type Pattern struct{ pattern string }

// Parse returns a driver.ErrInvalid for a pattern that is not valid.
func Parse(pattern string) (Pattern, error) {
	g := Pattern{flat(pattern)}
	if _, err := path.Match(g.pattern, ""); err != nil {
		return Pattern{}, fmt.Errorf("%w: pattern %q: %w; want *, ?, [a-z], and \\ to quote", driver.ErrInvalid, pattern, err)
	}
	return g, nil
}

// Matches reports whether a whole name matches.
func (g Pattern) Matches(name string) bool {
	if g.pattern == "*" {
		return true
	}
	matches, err := path.Match(g.pattern, flat(name))
	return matches && err == nil
}

// flat makes a slash an ordinary character, as it is in names.
func flat(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
