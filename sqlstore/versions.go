package sqlstore

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// StepsBetween returns the versions that lead from one version of a schema to another, in order. They
// are to be created, or if to is less than from, to be removed. Version 0 is no schema.
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
