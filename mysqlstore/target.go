package mysqlstore

import "database/sql"

// A Target is what a Store uses, and how: see package doctor.
type Target struct {
	DB     *sql.DB
	Prefix string // see Prefix
}

// Target returns what the store uses.
func (s *Store) Target() Target { return Target{DB: s.pool, Prefix: s.prefix} }
