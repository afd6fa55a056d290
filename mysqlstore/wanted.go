package mysqlstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// NotifyWanted implements driver.Store. The client fetches its events more often for a
// minute after each call: see Watch.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	if len(r.Token) > maxToken || len(r.Client) > maxToken {
		return false, fmt.Errorf("%w: notify wanted %q: the token or the client is longer than %d bytes", driver.ErrInvalid, r.Name, maxToken)
	}
	wanted, err = s.db.NotifyWanted(ctx, r)
	if err == nil && !wanted {
		s.fetches.asks(r.Client)
	}
	return wanted, err
}
