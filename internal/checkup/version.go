package checkup

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// FindingsOfVersion compares the version of a schema that has no functions of this program with the
// version that this program needs. place is the schema or the database.
func FindingsOfVersion(place string, version, mine int) []Candidate {
	const noLocks = "nothing can be locked"
	return []Candidate{
		If(version < mine, driver.Critical, "schema", fmt.Sprintf("%s has version %d of the tables, but this program needs version %d", place, version, mine),
			noLocks, "dibs migrate, or Migrate of the store, as the owner of the tables"),
		If(version > mine, driver.Critical, "schema", fmt.Sprintf("%s has version %d of the tables, which has removed version %d of this program", place, version, mine),
			noLocks, "use a later release of dibs in this program"),
	}
}
