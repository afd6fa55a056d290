package zkstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/zkstore/internal/doctor"
)

var _ checkup.Examiner = (*Store)(nil)

// Examine implements checkup.Examiner.
func (s *Store) Examine(ctx context.Context) (checkup.Findings, error) {
	switch {
	case s == nil || s.sessions == nil:
		return nil, fmt.Errorf("doctor: %w", errNoServers)
	case s.invalid != nil:
		return nil, fmt.Errorf("doctor: %w", s.invalid)
	}
	t := doctor.Target{
		Store: s, Servers: s.sessions.servers, Dial: s.config.dial, ACL: s.config.acl, Prefix: s.config.prefix, Tick: s.config.tick, Slack: slack,
	}
	for _, l := range s.config.auth {
		t.Logins = append(t.Logins, doctor.Login{Scheme: l.scheme, Credentials: l.credentials})
	}
	return doctor.Examine(ctx, t)
}
