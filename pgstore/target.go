package pgstore

import "github.com/jackc/pgx/v5/pgxpool"

// A Target is what a Store uses, and how: see package doctor.
type Target struct {
	Pool   *pgxpool.Pool
	Schema string // see Schema
	Poll   bool   // see Poll
}

// Target returns what the store uses.
func (s *Store) Target() Target { return Target{Pool: s.conns.pool, Schema: s.schema, Poll: s.poll} }
