package mysqlstore

import (
	"cmp"
	"context"

	"github.com/dibslock/dibs/driver"
)

// NotifyWanted implements driver.WantedNotifier. The client fetches its events more often for a
// minute after each call: see Watch.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	if err := cmp.Or(driver.CheckWanted(r), checkTexts("notify wanted", r.Name, r.Token, r.Client)); err != nil {
		return false, err
	}
	wanted, err = s.db.NotifyWanted(ctx, r)
	if err == nil && !wanted {
		s.fetches.asks(r.Client)
	}
	return wanted, err
}
