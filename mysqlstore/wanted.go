package mysqlstore

import (
	"cmp"
	"context"

	"github.com/dibslock/dibs/driver"
)

// NotifyWanted implements driver.WantedNotifier. If no request waits yet, Watch then polls for the
// client's events at least every 250 ms for a minute. Each renewal of the lease repeats the call.
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
