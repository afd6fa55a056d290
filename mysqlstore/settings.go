package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dibslock/dibs/mysqlstore/internal/session"
)

// A settingError is a session setting with which requests would fail half-way: an acquire would
// succeed, and its renewals would not.
type settingError struct{ problem, effect, advice string }

func (e *settingError) Error() string {
	return fmt.Sprintf("%s, so %s: %s", e.problem, e.effect, e.advice)
}

// checkSettings checks a connection's settings, until it finds a connection with the right
// settings: all come from a single data source name.
func (s *Store) checkSettings(ctx context.Context, conn *sql.Conn) error {
	if s.checked.Load() {
		return nil
	}
	problems, err := session.Problems(func(text string, args ...any) *sql.Row { return conn.QueryRowContext(ctx, text, args...) })
	if err != nil {
		return err
	}
	for i, problem := range problems {
		setting := session.Settings[i]
		return &settingError{problem, setting.Effect, setting.Advice()}
	}
	s.checked.Store(true)
	return nil
}
