package main

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

// exitFree is show's exit code if the name is free, as in test(1).
const exitFree = 1

func showCmd(a *app) *cobra.Command {
	var whole bool
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the holders and waiters of a name",
		Long: `Show the holders of a name, and its waiters in queue order.

The kind of a lock is a mutex, reader, writer, semaphore, multi-lock, election,
or periodic job. A token that the application has chosen does not say its kind:
then the lock is shown as mutex if it is exclusive, and as shared otherwise.
WEIGHT is how much of the lock a holder has, or a waiter requests. "all" is
exclusive.

Of a quorum, show prints the nodes that do not answer, or whose holders differ.

The key of the name may hold a lock of another library, such as an RLock of
Redisson, or data of another program. show prints the key, its type in Redis,
what it looks like, its owner as that library writes it, and what to do.

Whoever has a token can release the lock: only --show-token shows tokens.

Exit codes: 0 held; 1 free; 125 unknown, or not a lock; 64 invalid command line.`,
		Example: `  dibs show nightly
  dibs show nightly --json | jq '.holders[0].fence'
  dibs show -q nightly; [ $? = 1 ] && echo free`,
		Args:              argCount(1, 1),
		ValidArgsFunction: a.stores.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			convert := view.StateOf
			if whole {
				convert = view.StateWithTokens
			}
			return a.withStore(func(ctx context.Context, s *opened) error { return show(ctx, a.con, s, args[0], convert) })
		},
	}
	c.Flags().BoolVar(&whole, "show-token", false, "show owner tokens; whoever has one can release the lock")
	return c
}

func show(ctx context.Context, con *console, s *opened, name string, convert func(driver.State, time.Time) view.State) error {
	state, err := s.poller().Inspect(ctx, name)
	if err != nil && !errors.Is(err, driver.ErrWrongType) {
		return err
	}
	now := time.Now()
	n := convert(state, now)
	code := 0
	switch {
	case err != nil, n.State == view.WrongType:
		n.Name, n.State, code = name, view.WrongType, exitTrouble
	case n.State != view.Held:
		code = exitFree
	}
	return errors.Join(printState(con, n, now), exitWith(code, nil))
}

func printState(con *console, n view.State, now time.Time) error {
	switch {
	case con.json:
		return con.printJSON(n)
	case con.quiet:
		return nil
	}
	return con.print(n.Text(now, con.width()))
}
