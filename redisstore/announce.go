package redisstore

import (
	"context"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// Announce implements driver.Announcer. It makes a script call for each slot, all concurrently.
func (s *Store) Announce(ctx context.Context, names []string) {
	var group sync.WaitGroup
	for _, names := range s.Groups(names) {
		group.Go(func() {
			r := s.requests.Get()
			s.format.Announce(&r.Request, names)
			s.do(ctx, r, driver.DeadlineOf(ctx))
		})
	}
	group.Wait()
}
