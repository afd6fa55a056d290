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
		Long: `List the names that are held, and by whom. GLOB is a pattern of * ? [a-z], with
\ to quote one of these: '*' if there is none. It looks through all keys of the
Redis, unless GLOB is a plain name.

HOLDER is the holder, or one of several; TTL is when the first lease ends if
nobody renews it; HELD is for how long it has been held; WAIT is the number of
waiters. HELD and FENCE are not known before a lease was renewed once. On a
terminal, long names are shortened, and columns that do not fit are left out.`,
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
	c.Flags().StringVar(&by, "sort", "name", "order: name, ttl (what ends first) or waiting (most first)")
	return c
}

// globOf is the pattern that a verb was given, or that of all names.
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
		a.logf("nothing is held that matches %s in %s", safe(glob), s.location)
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

// orders are what --sort may say. Names come in order, and stay so where they are equal.
var orders = map[string]func(x, y nameState) int{
	"name":    func(x, y nameState) int { return cmp.Compare(x.Name, y.Name) },
	"ttl":     func(x, y nameState) int { return cmp.Compare(neverLast(x.left()), neverLast(y.left())) },
	"waiting": func(x, y nameState) int { return cmp.Compare(y.Waiting, x.Waiting) },
}

// endless puts what never ends last.
func neverLast(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}
