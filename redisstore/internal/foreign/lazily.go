package foreign

import (
	"regexp"
	"sync"
)

// lazily returns a regular expression that is compiled on first use: most programs never look at
// foreign keys.
func lazily(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
