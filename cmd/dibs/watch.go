package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

func watchCmd(a *app) *cobra.Command {
	var every, during durationFlag
	c := &cobra.Command{
		Use:   "watch [GLOB]",
		Short: "Print a line for each change",
		Long: `Print a line for each change of a matching name: acquired, released, expired, a
new waiter, a waiter that has given up. It runs until a signal ends it. GLOB is
as in "dibs ls".

It polls the store, --every after the last answer, so it may miss changes that
are shorter. It reports an outage of the store and goes on polling.

Exit codes: 0 --for is over; 130 or 143 ended by a signal; 64 invalid command
line.`,
		Example: `  dibs watch
  dibs watch 'order:*' --every 2s
  dibs watch --json --for 1h | jq -r 'select(.event == "expired").name'`,
		Args:              argCount(0, 1),
		ValidArgsFunction: a.stores.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := every.check(); err != nil {
				return err
			}
			return a.withStore(func(ctx context.Context, s *opened) error {
				if during > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(during))
					defer cancel()
				}
				return printPolls(ctx, a.con, s, globOf(args), time.Duration(every))
			})
		},
	}
	addEvery(c, &every)
	c.Flags().Var(&during, "for", "exit after this time (default: run until a signal)")
	return c
}

func addEvery(c *cobra.Command, every *durationFlag) {
	*every = durationFlag(500 * time.Millisecond)
	c.Flags().Var(every, "every", "pause between two polls of the store")
}

// check rejects an --every that is too short.
func (s durationFlag) check() error {
	const least = 10 * time.Millisecond
	if every := time.Duration(s); every < least {
		return usage("--every %v: want at least %v", every, least)
	}
	return nil
}

// printPolls prints the changes until ctx ends.
func printPolls(ctx context.Context, con *console, s *opened, glob string, every time.Duration) error {
	var w watch.Watcher
	for poll := range s.poller().Polls(ctx, glob, every) {
		if errors.Is(poll.Err, driver.ErrInvalid) {
			return poll.Err
		}
		if err := printChanges(con, s.location, w.Update(poll)); err != nil {
			return err
		}
	}
	return nil
}

// printChanges prints a poll's changes at once. Store outages go to stderr, except with --json.
func printChanges(con *console, location string, news []view.Change) error {
	var lines bytes.Buffer
	for _, one := range news {
		switch {
		case con.json:
			if err := view.WriteLine(&lines, one); err != nil {
				return err
			}
		case one.Event == view.EventAway:
			fmt.Fprintf(con.err, "dibs: the store does not answer, trying again: %s\nstore: %s\n", one.Error, location)
		case one.Event == view.EventBack:
			fmt.Fprintf(con.err, "dibs: the store answers again\n")
		default:
			lines.WriteString(one.Text(con.width()))
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	return con.print(lines.String())
}
