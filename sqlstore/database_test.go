package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A plain dialect sends texts as they are.
type plain struct{}

var errRepeat = errors.New("deadlock")

func (plain) Name(name string) any          { return name }
func (plain) Names(names []string) any      { return names }
func (plain) Ordered(names []string) any    { return names }
func (plain) Text(text string) any          { return text }
func (plain) Key(text string) any           { return text }
func (plain) Pair(name, token string) []any { return []any{name, token} }
func (plain) Decode(text string) string     { return text }
func (plain) Repeatable(err error) bool     { return errors.Is(err, errRepeat) }
func (plain) Unavailable(op, name string, err error) error {
	return Unavailable(op, name, err, err, false)
}

// A reply contains rows of strings and numbers, and an error after them.
type reply struct {
	rows [][]any
	err  error
	row  []any
}

func (r *reply) Next() bool {
	if len(r.rows) == 0 {
		return false
	}
	r.row, r.rows = r.rows[0], r.rows[1:]
	return true
}

func (r *reply) Err() error { return r.err }

func (r *reply) Scan(into ...any) error {
	for i, value := range r.row {
		switch into := into[i].(type) {
		case *string:
			*into = value.(string)
		case *int64:
			*into = value.(int64)
		case *uint64:
			*into = uint64(value.(int64))
		case **bool:
			held := value.(bool)
			*into = &held
		default:
			return fmt.Errorf("column %d: %T", i, into)
		}
	}
	return nil
}

// An error after a request's row is the request's error, as when a procedure fails at its end. A
// request rolled back by the server is repeated.
func TestErrorAfterTheRow(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, c := range []struct {
		what   string
		errs   []error
		want   error
		called int
	}{
		{"no error", []error{nil}, nil, 1},
		{"at the end", []error{failed}, failed, 1},
		{"repeated", []error{errRepeat, nil}, nil, 2},
	} {
		called := 0
		d := NewDatabase(plain{}, func(_ context.Context, _ bool, _ string, _ []any, read func(Rows) error) error {
			called++
			return read(&reply{rows: [][]any{{time.Now().UnixMicro(), true}}, err: c.errs[called-1]})
		})
		revoked, err := d.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: 1})
		if !errors.Is(err, c.want) || err == nil && !revoked || called != c.called {
			t.Errorf("%s: %v, %v after %d calls, want %v after %d", c.what, revoked, err, called, c.want, c.called)
		}
	}
}

// A revoke by token first finds the fence. Without a lease it revokes nothing.
func TestRevokeByToken(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		var sent []string
		d := NewDatabase(plain{}, func(_ context.Context, _ bool, text string, args []any, read func(Rows) error) error {
			sent = append(sent, fmt.Sprint(text, args[:2]))
			switch {
			case text == "revoke":
				return read(&reply{rows: [][]any{{time.Now().UnixMicro(), true}}})
			case held:
				return read(&reply{rows: [][]any{{int64(7)}}})
			}
			return read(&reply{})
		})
		d.SQL = Statements{Revoke: "revoke", FenceOf: "fence of"}
		revoked, err := d.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: "t"})
		want := "[fence of[n t]]"
		if held {
			want = "[fence of[n t] revoke[n 7]]"
		}
		if revoked != held || err != nil || fmt.Sprint(sent) != want {
			t.Errorf("held %v: %v, %v, sent %v, want %v", held, revoked, err, sent, want)
		}
	}
}

// A list reads page after page, and returns the matching names.
func TestListOfPages(t *testing.T) {
	t.Parallel()
	const all = 25_000
	pages := 0
	d := NewDatabase(plain{}, func(_ context.Context, _ bool, _ string, args []any, read func(Rows) error) error {
		pages++
		r := &reply{}
		for i := range all {
			if name := fmt.Sprintf("n%05d", i); name > args[0].(string) && len(r.rows) < args[1].(int) {
				r.rows = append(r.rows, []any{name})
			}
		}
		return read(r)
	})
	names, err := d.List(t.Context(), "n*7")
	if err != nil || len(names) != all/10 || names[0] != "n00007" || pages != 3 {
		t.Errorf("%d names of %d pages, %v", len(names), pages, err)
	}
	if err := d.One(t.Context(), false, "", []any{"o", 1}, new(string)); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("%v, want ErrNoRows", err)
	}
}
