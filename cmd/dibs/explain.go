package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/view"
	"github.com/dibslock/dibs/driver"
)

// explain adds the location of the store and a hint to an error of the store.
func (o *opened) explain(err error) error {
	if err == nil || silent(err) {
		return err
	}
	var lines []string
	switch {
	case errors.Is(err, dibs.ErrWrongType):
		err = rephrased{err, withoutReply(view.ErrorText(err)) + ": the key holds a value that is not a lock of dibs; it was not changed"}
		lines = append(lines, "to see its type: redis-cli TYPE PREFIX+NAME; a hash may be a Redisson lock")
	case errors.Is(err, dibs.ErrLost):
	case errors.Is(err, driver.ErrNoTables):
		lines = append(lines, "to create the tables: dibs migrate")
	case errors.Is(err, context.DeadlineExceeded):
		lines = append(lines, "if the store is slow or has very many keys, allow more time: --timeout 30s")
	case errors.Is(err, dibs.ErrUnavailable):
		lines = append(lines, "to check the store: dibs doctor")
	default:
		return err
	}
	if errors.Is(err, dibs.ErrUnavailable) && timedOut(err) && strings.HasPrefix(o.location, "rediss") {
		lines = append(lines, "rediss:// needs a server with TLS: a server without TLS does not answer")
	}
	lines = append([]string{"", "store: " + o.location}, lines...)
	return fmt.Errorf("%w%s", err, strings.Join(lines, "\n"))
}

// timedOut reports whether err is a timeout, judging by its text: the errors of the store
// have no other sign of it.
func timedOut(err error) bool {
	text := err.Error()
	return strings.Contains(text, "no answer") || strings.Contains(text, "timeout") || strings.Contains(text, "deadline")
}

// A rephrased is an error with another text.
type rephrased struct {
	error
	text string
}

func (r rephrased) Error() string { return r.text }

func (r rephrased) Unwrap() error { return r.error }

// withoutReply cuts off the reply of Redis from an error about a key of the wrong type:
// that reply is about a script.
func withoutReply(text string) string {
	text = strings.TrimPrefix(text, view.ErrorText(dibs.ErrWrongType)+": ")
	for _, reply := range []string{": ERR ", ": WRONGTYPE"} {
		text, _, _ = strings.Cut(text, reply)
	}
	return text
}
