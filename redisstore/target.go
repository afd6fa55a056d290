package redisstore

import (
	"cmp"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Target is what a Store uses, and how: see package doctor.
type Target struct {
	Conn           redisconn.Conn
	Prefix         string        // see Prefix
	Sharded        bool          // see Sharded
	Proxy          bool          // see Proxy
	Replicas       int           // see WithReplicas; 0 without
	ReplicaTimeout time.Duration // see WithReplicas
}

// Target returns what the store uses. It returns driver.ErrInvalid if the options of the
// store make no sense.
func (s *Store) Target() (Target, error) {
	t := Target{Conn: s.conn, Prefix: s.format.Prefix, Sharded: s.format.Sharded, Proxy: s.format.Proxy}
	if s.replicas != nil {
		t.Replicas, t.ReplicaTimeout = s.replicas.count, s.replicas.timeout
	}
	return t, cmp.Or(s.replicas.check(), s.checkProxy())
}
