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
	v := verb{op: "notify wanted", name: r.Name, text: s.text.wanted}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{listOf(r.Name), []byte(r.Token), []byte(r.Client), until}
	}, scanFlag(&wanted))
	if err == nil && !wanted {
		s.fetches.asks(r.Client)
	}
	return wanted, err
}
