package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

const wantedSQL = `SELECT * FROM dibs.wanted($1, $2, $3, $4)`

// NotifyWanted implements driver.Store. With the option Poll no event arrives.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	v := verb{op: "notify wanted", name: r.Name, text: s.text.wanted}
	err = s.call(ctx, v, func(until int64) []any { return []any{toText(r.Name), toText(r.Token), toText(r.Client), until} }, scanFlag(&wanted))
	return wanted, err
}
