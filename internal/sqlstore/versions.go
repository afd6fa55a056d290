package sqlstore

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// StepsBetween returns the versions of a schema to create, or to remove if to is less than from, in
// this order. Version 0 has nothing; latest is the last one that is known.
func StepsBetween(from, to, latest int) (versions []int, err error) {
	if min(from, to) < 0 || max(from, to) > latest {
		return nil, fmt.Errorf("%w: there is no way from version %d of the schema to %d: versions are 0 to %d", driver.ErrInvalid, from, to, latest)
	}
	for v := from + 1; v <= to; v++ {
		versions = append(versions, v)
	}
	for v := from; v > to; v-- {
		versions = append(versions, v)
	}
	return versions, nil
}
