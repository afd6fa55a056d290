package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs"
)

// explain adds to what a store said where it is, and what may help.
func (o *opened) explain(err error) error {
	if err == nil || silent(err) {
		return err
	}
	var lines []string
	switch {
	case errors.Is(err, dibs.ErrWrongType):
		err = rephrased{err, withoutReply(errorText(err)) + ": the key holds no lock of dibs, and is left alone"}
		lines = append(lines, "what it is: redis-cli TYPE with the prefix and the name; a hash may be a lock of Redisson")
	case errors.Is(err, dibs.ErrLost):
	case errors.Is(err, context.DeadlineExceeded):
		lines = append(lines, "if it is slow, or has very many keys, give it more time: --timeout 30s")
	case errors.Is(err, dibs.ErrUnavailable):
		lines = append(lines, "what ails it: dibs doctor")
	default:
		return err
	}
	if errors.Is(err, dibs.ErrUnavailable) && timedOut(err) && strings.HasPrefix(o.location, "rediss") {
		lines = append(lines, "rediss:// is for a server that speaks TLS: one that does not gives no answer")
	}
	lines = append([]string{"", "store: " + o.location}, lines...)
	return fmt.Errorf("%w%s", err, strings.Join(lines, "\n"))
}

// explain is that of the store in which a lock was asked for.
func (a *app) explain(err error) error {
	if a.opened == nil {
		return err
	}
	return a.opened.explain(err)
}

// timedOut reports whether an answer did not come, as far as the text tells: the errors
// of the store do not say it in another way.
func timedOut(err error) bool {
	text := err.Error()
	return strings.Contains(text, "no answer") || strings.Contains(text, "timeout") || strings.Contains(text, "deadline")
}

// retold is an error in other words.
type rephrased struct {
	error
	text string
}

func (r rephrased) Error() string { return r.text }

func (r rephrased) Unwrap() error { return r.error }

// withoutReply cuts off what Redis has said of a key of the wrong type: it is about a
// script.
func withoutReply(text string) string {
	text = strings.TrimPrefix(text, errorText(dibs.ErrWrongType)+": ")
	for _, reply := range []string{": ERR ", ": WRONGTYPE"} {
		text, _, _ = strings.Cut(text, reply)
	}
	return text
}
