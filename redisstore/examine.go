package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/redisstore/internal/doctor"
)

var _ checkup.Examiner = (*Store)(nil)

// Examine implements checkup.Examiner. It examines each master.
func (s *Store) Examine(ctx context.Context) (checkup.Findings, error) {
	if err := cmp.Or(s.replicas.check(), s.checkProxy()); err != nil {
		return nil, err
	}
	t := doctor.Target{
		Store: s, Conn: s.conn, Prefix: s.format.Prefix, Sharded: s.format.Sharded, Proxy: s.format.Proxy,
		LacksReplicas: func(err error) bool {
			var lacks *ReplicasError
			return errors.As(err, &lacks)
		},
	}
	if s.replicas != nil {
		t.Replicas, t.ReplicaTimeout = s.replicas.count, s.replicas.timeout
	}
	return doctor.Examine(ctx, t)
}
