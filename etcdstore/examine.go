package etcdstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/etcdstore/internal/doctor"
)

var _ checkup.Examiner = (*Store)(nil)

// Examine implements checkup.Examiner.
func (s *Store) Examine(ctx context.Context) (checkup.Findings, error) {
	if s == nil || s.cli == nil {
		return nil, fmt.Errorf("doctor: %w", errNoClient)
	}
	return doctor.Examine(ctx, doctor.Target{Store: s, Client: s.cli, Prefix: s.keys.prefix, MinTTL: minTTL})
}
