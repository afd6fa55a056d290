package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

const wantedSQL = `SELECT * FROM dibs.wanted($1, $2, $3, $4)`

// NotifyWanted implements driver.WantedNotifier. With the option Poll no event arrives.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	return s.db.NotifyWanted(ctx, r)
}
