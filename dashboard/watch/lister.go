package watch

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A lister lists the names that match a glob. To list them, Redis scans its whole keyspace, which
// takes long if there are many other keys. So the pause until the next scan is at least share times
// as long as the last scan took, and names returns the last result meanwhile.
type lister struct {
	poller Poller
	glob   string
	found  []string
	due    time.Time // when the next scan is due
}

const (
	share    = 19          // a scan takes at most a twentieth of the time
	scanTime = time.Minute // limit for a scan
)

// names returns the names that match, in no order. A plain name is returned as it is.
func (l *lister) names(ctx context.Context) ([]string, error) {
	if !strings.ContainsAny(l.glob, `*?[\`) {
		return []string{l.glob}, driver.CheckName(l.glob)
	}
	began := time.Now()
	if began.Before(l.due) {
		return l.found, nil
	}
	if err := l.probe(ctx); err != nil {
		return nil, err
	}
	found, err := bounded(ctx, scanTime, "list", func(ctx context.Context) ([]string, error) {
		return l.poller.Store.List(ctx, l.glob)
	})
	if err != nil {
		return nil, err
	}
	ended := time.Now()
	l.found, l.due = found, ended.Add(share*ended.Sub(began))
	return found, nil
}

// probe returns an error if the store does not answer within the timeout for a request: a scan has
// a longer timeout.
func (l *lister) probe(ctx context.Context) error {
	_, err := bounded(ctx, l.poller.Timeout, "list", func(ctx context.Context) (driver.State, error) {
		return l.poller.Store.Inspect(ctx, "dibs:check")
	})
	var unavailable *driver.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Refused {
		return nil
	}
	failed := *unavailable
	failed.Op, failed.Name = "list", l.glob
	return &failed
}
