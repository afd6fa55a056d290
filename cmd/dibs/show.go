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

// exitFree is the code of what is not held, as of test(1).
const exitFree = 1

func (a *app) showCmd() *cobra.Command {
	var whole bool
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a name, and who waits for it",
		Long: `Show who holds a name, and who waits for it, the next one first.

A name is held as a mutex, by one holder; shared, by readers or by permits of a
semaphore, one each; as permits, where somebody holds several. It is foreign if
its key holds no lock of dibs, such as a hash of Redisson: then dibs cannot lock
the name until the key is gone.

Whoever has a token can release the lock: only --show-token shows tokens.

Exit codes: 0 it is held; 1 it is free; 125 that is not known; 64 the command
line.`,
		Example: `  dibs show nightly
  dibs show nightly --json | jq '.holders[0].fence'
  dibs show -q nightly; [ $? = 1 ] && echo free`,
		Args:              argCount(1, 1),
		ValidArgsFunction: a.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withStore(func(ctx context.Context, s *opened) error { return a.show(ctx, s, args[0], whole) })
		},
	}
	c.Flags().BoolVar(&whole, "show-token", false, "show owner tokens, with which anybody can release the lock")
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
		n.Name, n.State, code = name, "foreign", exitTrouble
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

// text is all that is known of a name, for people, on lines of a width or, if that is
// zero, as they are.
func (n nameState) text(width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %s\n", safe(n.Name), n.description())
	if len(n.Holders) > 0 {
		b.WriteString(n.holderTable().fit(width, "HELD", "FENCE").String())
	}
	if n.Waiting > 0 {
		fmt.Fprintf(&b, "\n%s, the next one first%s\n", plural(n.Waiting, "waiter", "waiters"), firstOf(len(n.Waiters), n.Waiting))
		b.WriteString(n.waiterTable().fit(width).String())
	}
	return b.String()
}

func (n nameState) description() string {
	switch {
	case n.State == "foreign":
		return "foreign: its key holds no lock of dibs, and dibs cannot lock the name\nwhat it is: redis-cli TYPE with the prefix and the name; a hash may be a lock of Redisson"
	case n.State == "free":
		return "free"
	case n.Kind == kindMutex:
		return "held: mutex, by one holder"
	case n.Kind == kindPermits:
		return fmt.Sprintf("held: permits, by %s%s", plural(n.Holding, "holder", "holders"), firstOf(len(n.Holders), n.Holding))
	}
	return fmt.Sprintf("held: shared, by %s%s", plural(n.Holding, "reader or permit", "readers or permits"), firstOf(len(n.Holders), n.Holding))
}

// firstOf says that a list is not whole.
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
