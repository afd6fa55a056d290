package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Text formats a name's state for people, on lines with width columns. If width is zero, the lines
// are not shortened.
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
		b.WriteString(n.waiterTable().Fit(width, "KIND", "WEIGHT").String())
	}
	if nodes := n.nodesText(); nodes != "" {
		b.WriteString("\n" + nodes)
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
	case n.Kind == string(driver.KindSemaphore) && n.Limit > 0:
		return fmt.Sprintf("is held: %s permits, by %s%s", n.kindText(), Plural(n.Holding, "holder", "holders"), firstOf(len(n.Holders), n.Holding))
	case n.Kind == string(driver.KindReader):
		return fmt.Sprintf("is held: by %s%s", Plural(n.Holding, "reader", "readers"), firstOf(len(n.Holders), n.Holding))
	case n.Kind == KindShared:
		return fmt.Sprintf("is held: shared, by %s%s", Plural(n.Holding, "holder", "holders"), firstOf(len(n.Holders), n.Holding))
	}
	return fmt.Sprintf("is held: %s, by one holder", KindWord(n.Kind))
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
		t.Row(h.String(), Brief(h.Left()), orDash(h.Ago(now)), weightText(h.Weight), number(h.Fence))
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
	t.Row("#", "WAITER", "KIND", "WEIGHT", "WAITED")
	for _, w := range n.Waiters {
		t.Row(strconv.Itoa(w.Position), w.String(), orDash(KindWord(w.Kind)), w.weightText(), Brief(w.waited()))
	}
	if n.wholeTokens {
		t[0] = append(t[0], "TOKEN")
		for i, w := range n.Waiters {
			t[i+1] = append(t[i+1], Safe(w.Token))
		}
	}
	return t
}

// weightText formats a weight for people: an exclusive holder's or waiter's is "all".
func weightText(weight int) string {
	if weight == 0 {
		return "all"
	}
	return strconv.Itoa(weight)
}

// weightText formats the request's weight, or "-" if it is unknown.
func (w Waiter) weightText() string {
	if w.Kind == "" {
		return "-"
	}
	return weightText(w.Weight)
}
