package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
)

// exitFree is the exit code of show if the name is free, as of test(1).
const exitFree = 1

func (a *app) showCmd() *cobra.Command {
	var whole bool
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the holders and waiters of a name",
		Long: `Show the holders of a name, and its waiters in queue order.

A name is held as one of these kinds:

    mutex    by one exclusive holder
    shared   by readers, or by holders of one permit each
    permits  by holders of permits, of which one has several

The key of the name may hold a value that is not a lock of dibs, such as a hash
of Redisson. Then the name cannot be locked until that key is deleted.

Whoever has a token can release the lock: only --show-token shows tokens.

Exit codes: 0 held; 1 free; 125 unknown, or not a lock; 64 invalid command line.`,
		Example: `  dibs show nightly
  dibs show nightly --json | jq '.holders[0].fence'
  dibs show -q nightly; [ $? = 1 ] && echo free`,
		Args:              argCount(1, 1),
		ValidArgsFunction: a.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withStore(func(ctx context.Context, s *opened) error { return a.show(ctx, s, args[0], whole) })
		},
	}
	c.Flags().BoolVar(&whole, "show-token", false, "show owner tokens; whoever has one can release the lock")
	return c
}

func (a *app) show(ctx context.Context, s *opened, name string, whole bool) error {
	state, err := a.inspect(ctx, s, name)
	if err != nil && !errors.Is(err, dibs.ErrWrongType) {
		return err
	}
	n := stateOf(state, whole)
	code := 0
	switch {
	case err != nil:
		n.Name, n.State, code = name, stateWrongType, exitTrouble
	case n.State != "held":
		code = exitFree
	}
	return errors.Join(a.printState(n), exitWith(code, nil))
}

func (a *app) printState(n nameState) error {
	switch {
	case a.json:
		return a.printJSON(n)
	case a.quiet:
		return nil
	}
	return a.print(n.text(a.width()))
}

// text formats the state of a name for people, on lines of width columns. If width is
// zero, the lines are not shortened.
func (n nameState) text(width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", safe(n.Name), n.description())
	if len(n.Holders) > 0 {
		b.WriteString(n.holderTable().fit(width, "HELD", "FENCE").String())
	}
	if n.Waiting > 0 {
		fmt.Fprintf(&b, "\n%s in queue order%s\n", plural(n.Waiting, "waiter", "waiters"), firstOf(len(n.Waiters), n.Waiting))
		b.WriteString(n.waiterTable().fit(width).String())
	}
	return b.String()
}

func (n nameState) description() string {
	switch {
	case n.State == stateWrongType:
		return "cannot be locked: its key holds a value that is not a lock of dibs\nto see its type: redis-cli TYPE PREFIX+NAME; a hash may be a Redisson lock"
	case n.State == "free":
		return "is free"
	case n.Kind == kindMutex:
		return "is held: mutex, by one holder"
	case n.Kind == kindPermits:
		return fmt.Sprintf("is held: permits, by %s%s", plural(n.Holding, "holder", "holders"), firstOf(len(n.Holders), n.Holding))
	}
	return fmt.Sprintf("is held: shared, by %s%s", plural(n.Holding, "reader or permit", "readers or permits"), firstOf(len(n.Holders), n.Holding))
}

// firstOf returns a note if a list is incomplete.
func firstOf(known, all int) string {
	if known >= all {
		return ""
	}
	return fmt.Sprintf(" (%d of them shown)", known)
}

func (n nameState) holderTable() (t table) {
	t.row("HOLDER", "TTL", "HELD", "WEIGHT", "FENCE")
	for _, h := range n.Holders {
		weight := "all"
		if h.Weight > 0 {
			weight = strconv.Itoa(h.Weight)
		}
		t.row(h.String(), brief(h.left()), orDash(h.ago()), weight, number(h.Fence))
	}
	if n.wholeTokens {
		t[0] = append(t[0], "TOKEN")
		for i, h := range n.Holders {
			t[i+1] = append(t[i+1], safe(h.Token))
		}
	}
	return t
}

func (n nameState) waiterTable() (t table) {
	t.row("#", "WAITER", "WAITED")
	for _, w := range n.Waiters {
		t.row(strconv.Itoa(w.Position), w.String(), brief(time.Duration(w.Waited)*time.Millisecond))
	}
	if n.wholeTokens {
		t[0] = append(t[0], "TOKEN")
		for i, w := range n.Waiters {
			t[i+1] = append(t[i+1], safe(w.Token))
		}
	}
	return t
}
