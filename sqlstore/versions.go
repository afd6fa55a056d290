package sqlstore

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// Migration returns the statements to migrate a schema between two versions, in order: the
// statements in up create a version, and those in down remove it. Version 0 is no schema.
func Migration(from, to, latest int, up, down func(version int) []string) (statements []string, err error) {
	if min(from, to) < 0 || max(from, to) > latest {
		return nil, fmt.Errorf("%w: there is no way from version %d of the schema to %d: versions are 0 to %d", driver.ErrInvalid, from, to, latest)
	}
	for v := from + 1; v <= to; v++ {
		statements = append(statements, up(v)...)
	}
	for v := from; v > to; v-- {
		statements = append(statements, down(v)...)
	}
	return statements, nil
}
