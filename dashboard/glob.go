package dashboard

import (
	"fmt"
	"path"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// A glob is a pattern of names, with the rules of driver.Store.List.
type glob struct{ pattern string }

// parseGlob returns an ErrInvalid for a pattern that List rejects. An empty one matches
// everything.
func parseGlob(pattern string) (glob, error) {
	if pattern == "" {
		pattern = "*"
	}
	g := glob{flat(pattern)}
	if _, err := path.Match(g.pattern, ""); err != nil || len(pattern) > driver.MaxName {
		return glob{}, fmt.Errorf("%w: pattern %q: want *, ?, [a-z], and \\ to quote", driver.ErrInvalid, pattern[:min(len(pattern), driver.MaxName)])
	}
	return g, nil
}

// matches reports whether the whole name matches.
func (g glob) matches(name string) bool {
	if g.pattern == "*" {
		return true
	}
	ok, err := path.Match(g.pattern, flat(name))
	return ok && err == nil
}

// flat makes a slash an ordinary character, as it is in names.
func flat(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
