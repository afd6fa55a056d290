package dashboard

import (
	"cmp"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/glob"
)

// parseGlob returns an ErrInvalid for a pattern that is longer than a name may be, or that a
// store's List rejects. An empty pattern matches everything.
func parseGlob(pattern string) (glob.Pattern, error) {
	if len(pattern) > driver.MaxName {
		return glob.Pattern{}, fmt.Errorf("%w: pattern %q…: more than %d bytes", driver.ErrInvalid, pattern[:driver.MaxName], driver.MaxName)
	}
	return glob.Parse(cmp.Or(pattern, "*"))
}
