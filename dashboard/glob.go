package dashboard

import (
	"cmp"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// parseGlob returns an ErrInvalid for a pattern that is longer than a name may be, or that
// List of a store rejects. An empty one matches everything.
func parseGlob(pattern string) (driver.Glob, error) {
	if len(pattern) > driver.MaxName {
		return driver.Glob{}, fmt.Errorf("%w: pattern %q…: more than %d bytes", driver.ErrInvalid, pattern[:driver.MaxName], driver.MaxName)
	}
	return driver.ParseGlob(cmp.Or(pattern, "*"))
}
