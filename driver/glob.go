package driver

import (
	"fmt"
	"path"
	"strings"
)

// A Glob is a pattern of names, with the rules of Store.List. The zero value matches nothing.
type Glob struct{ pattern string }

// ParseGlob returns an ErrInvalid for a pattern that is not valid.
func ParseGlob(pattern string) (Glob, error) {
	g := Glob{flat(pattern)}
	if _, err := path.Match(g.pattern, ""); err != nil {
		return Glob{}, fmt.Errorf("%w: pattern %q: %w; want *, ?, [a-z], and \\ to quote", ErrInvalid, pattern, err)
	}
	return g, nil
}

// Matches reports whether a whole name matches.
func (g Glob) Matches(name string) bool {
	if g.pattern == "*" {
		return true
	}
	matches, err := path.Match(g.pattern, flat(name))
	return matches && err == nil
}

// flat makes a slash an ordinary character, as it is in names.
func flat(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
