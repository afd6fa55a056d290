package redisconn

import (
	"context"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	const usual = time.Second
	whole := []Cmd{{Script: new(Script), Whole: true}}
	for _, c := range []struct {
		name     string
		patience time.Duration // how long the caller waits; zero: no deadline
		cmds     []Cmd
		want     time.Duration
	}{
		{"no deadline", 0, nil, usual},
		{"an impatient caller", usual / 2, nil, usual},
		{"a patient caller", 5 * usual, nil, 5 * usual},
		{"a very patient caller", time.Hour, nil, PatientTimeout},
		{"a script", 0, whole, LoadTimeout},
	} {
		ctx, begin := context.Background(), time.Now()
		if c.patience > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, begin.Add(c.patience))
			defer cancel()
		}
		at := Until(ctx, usual, c.cmds)
		if at.Before(begin.Add(c.want)) || at.After(time.Now().Add(c.want)) {
			t.Errorf("%s: until %v from now, want %v", c.name, at.Sub(begin), c.want)
		}
	}
}
