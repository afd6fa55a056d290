package pgstore

import "github.com/jackc/pgx/v5/pgxpool"

// A Target describes a Store's resources and settings: see package doctor.
type Target struct {
	Pool   *pgxpool.Pool
	Schema string // see Schema
	Poll   bool   // see Poll
}

// Target returns the store's target.
func (s *Store) Target() Target { return Target{Pool: s.conns.pool, Schema: s.schema, Poll: s.poll} }
