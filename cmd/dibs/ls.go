package main

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) lsCmd() *cobra.Command {
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
			order, ok := orders[by]
			if !ok {
				return usage("--sort %q: want name, ttl or waiting", by)
			}
			return a.withStore(func(ctx context.Context, s *opened) error { return a.ls(ctx, s, globOf(args), order) })
		},
	}
	c.Flags().StringVar(&by, "sort", "name", "sort by name, ttl (first to expire first) or waiting (most waiters first)")
	return c
}

// globOf returns the GLOB argument, or "*" without one.
func globOf(args []string) string {
	if len(args) == 0 {
		return "*"
	}
	return args[0]
}

func (a *app) ls(ctx context.Context, s *opened, glob string, order func(x, y nameState) int) error {
	seen, err := a.inspectMatching(ctx, s, glob)
	if err != nil {
		return err
	}
	names := statesOf(seen)
	slices.SortStableFunc(names, order)
	if a.json {
		return a.printEachJSON(names)
	}
	if len(names) == 0 {
		a.logf("no held name matches %s in %s", safe(glob), s.location)
		return nil
	}
	return a.print(listTable(names).fit(a.width(), "FENCE", "KIND", "HELD", "HOLDER").String())
}

func (a *app) printEachJSON(names []nameState) error {
	for _, n := range names {
		if err := a.printJSON(n); err != nil {
			return err
		}
	}
	return nil
}

func listTable(names []nameState) (t table) {
	t.row("NAME", "KIND", "HOLDER", "TTL", "HELD", "WAIT", "FENCE")
	for _, n := range names {
		t.row(safe(n.Name), orDash(n.Kind), orDash(n.holderSummary()), n.ttl(), orDash(n.ago()), strconv.Itoa(n.Waiting), number(n.Fence))
	}
	return t
}

// orders are the values of --sort. The sort is stable and its input is sorted by name.
var orders = map[string]func(x, y nameState) int{
	"name":    func(x, y nameState) int { return cmp.Compare(x.Name, y.Name) },
	"ttl":     func(x, y nameState) int { return cmp.Compare(neverLast(x.left()), neverLast(y.left())) },
	"waiting": func(x, y nameState) int { return cmp.Compare(y.Waiting, x.Waiting) },
}

// neverLast maps -1, which means never, to a value that sorts last.
func neverLast(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}
