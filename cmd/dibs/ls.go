package main

import (
	"context"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

func lsCmd(a *app) *cobra.Command {
	var by string
	c := &cobra.Command{
		Use:   "ls [GLOB]",
		Short: "List the names that are held",
		Long: `List the names that are held or waited for, with their holders. GLOB is a
pattern of * ? [a-z], with \ to escape one of these characters (default '*').
Unless GLOB is a plain name, ls scans all keys of the Redis.

HOLDER is the first holder. TTL is the time until the first lease expires unless
it is renewed. HELD is the time since the first holder acquired it. WAIT is the
number of waiters. HELD and FENCE are unknown until a lease is renewed. On a
terminal, long names are shortened and columns that do not fit are omitted.`,
		Example: `  dibs ls --url redis://cache:6379
  dibs ls 'order:*' --sort waiting
  dibs ls --json | jq -r 'select(.waiting > 10).name'`,
		Args: argCount(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			order, ok := view.SortingBy(view.Orders, by)
			if !ok {
				return usage("--sort %q: want name, ttl, waiting or held", by)
			}
			return a.withStore(func(ctx context.Context, s *opened) error { return ls(ctx, a.con, s, globOf(args), order) })
		},
	}
	c.Flags().StringVar(&by, "sort", "name", "sort by name, ttl (first to expire first), waiting (most waiters first) or held (longest held first)")
	return c
}

// globOf returns the GLOB argument, or "*" without it.
func globOf(args []string) string {
	if len(args) == 0 {
		return "*"
	}
	return args[0]
}

func ls(ctx context.Context, con *console, s *opened, glob string, order view.Sorting) error {
	seen, err := s.poller().Matching(ctx, glob)
	if err != nil {
		return err
	}
	now := time.Now()
	names := sortedStates(seen, order, now)
	switch {
	case con.json:
		return printEachJSON(con, names)
	case len(names) == 0:
		con.logf("no held name matches %s in %s", view.Safe(glob), s.location)
		return nil
	}
	return con.print(view.List(names, now, con.width()).String())
}

// sortedStates returns states sorted by name in another order.
func sortedStates(seen []driver.State, order view.Sorting, now time.Time) []view.State {
	index := make(map[string]int, len(seen))
	for i, s := range seen {
		index[s.Name] = i
	}
	sorted := view.SummariesOf(seen)
	order.Sort(sorted)
	names := make([]view.State, len(seen))
	for i, s := range sorted {
		names[i] = view.StateOf(seen[index[s.Name]], now)
	}
	return names
}

func printEachJSON(con *console, names []view.State) error {
	for _, n := range names {
		if err := con.printJSON(n); err != nil {
			return err
		}
	}
	return nil
}
