package mysqlstore

import "database/sql"

// A Target describes a Store's resources and settings: see package doctor.
type Target struct {
	DB     *sql.DB
	Prefix string // see Prefix
}

// Target returns the store's target.
func (s *Store) Target() Target { return Target{DB: s.pool, Prefix: s.prefix} }
