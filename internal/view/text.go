package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Text formats the state of a name for people, on lines of width columns. If width is
// zero, the lines are not shortened.
func (n State) Text(now time.Time, width int) string {
	var b strings.Builder
	switch {
	case n.Foreign != nil:
		b.WriteString(n.describeForeign(width))
	default:
		fmt.Fprintf(&b, "%s %s\n", Safe(n.Name), n.Description())
		b.WriteString(n.holderTable(now).Fit(width, "HELD", "FENCE").String())
	}
	if n.Waiting > 0 {
		fmt.Fprintf(&b, "\n%s in queue order%s\n", Plural(n.Waiting, "waiter", "waiters"), firstOf(len(n.Waiters), n.Waiting))
		b.WriteString(n.waiterTable().Fit(width).String())
	}
	return b.String()
}

// Description says in words whether a name is held, and by how many.
func (n State) Description() string {
	switch {
	case n.State == WrongType:
		return "cannot be locked: its key holds a value that is not a lock of dibs\nto see its type: redis-cli TYPE PREFIX+NAME"
	case n.State == Free:
		return "is free"
	case n.Kind == KindMutex:
		return "is held: mutex, by one holder"
	case n.Kind == KindPermits:
		return fmt.Sprintf("is held: permits, by %s%s", Plural(n.Holding, "holder", "holders"), firstOf(len(n.Holders), n.Holding))
	}
	return fmt.Sprintf("is held: shared, by %s%s", Plural(n.Holding, "reader or permit", "readers or permits"), firstOf(len(n.Holders), n.Holding))
}

// firstOf returns a note if a list is incomplete.
func firstOf(known, all int) string {
	if known >= all {
		return ""
	}
	return fmt.Sprintf(" (%d of them shown)", known)
}

func (n State) holderTable(now time.Time) (t Table) {
	if len(n.Holders) == 0 {
		return nil
	}
	t.Row("HOLDER", "TTL", "HELD", "WEIGHT", "FENCE")
	for _, h := range n.Holders {
		weight := "all"
		if h.Weight > 0 {
			weight = strconv.Itoa(h.Weight)
		}
		t.Row(h.String(), Brief(h.Left()), orDash(h.ago(now)), weight, number(h.Fence))
	}
	if n.wholeTokens {
		t[0] = append(t[0], "TOKEN")
		for i, h := range n.Holders {
			t[i+1] = append(t[i+1], Safe(h.Token))
		}
	}
	return t
}

func (n State) waiterTable() (t Table) {
	t.Row("#", "WAITER", "WAITED")
	for _, w := range n.Waiters {
		t.Row(strconv.Itoa(w.Position), w.String(), Brief(w.waited()))
	}
	if n.wholeTokens {
		t[0] = append(t[0], "TOKEN")
		for i, w := range n.Waiters {
			t[i+1] = append(t[i+1], Safe(w.Token))
		}
	}
	return t
}
