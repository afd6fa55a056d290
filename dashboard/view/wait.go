package view

import (
	"cmp"
	"fmt"
	"time"
)

// A Wait is a wait for names.
type Wait struct {
	Names    []string
	Holder   string // the first holder's token, or ""
	Position int    // in the queue; 1: the first waiter
}

// Update records the token of the first holder and the position. An empty or zero value is unknown,
// and changes nothing.
func (w *Wait) Update(holder string, position int) {
	w.Holder, w.Position = cmp.Or(holder, w.Holder), cmp.Or(position, w.Position)
}

// String formats the names, the holder and the number of waiters ahead.
func (w Wait) String() string { return w.text(Quoted(w.Names)) }

func (w Wait) text(names string) string {
	text := "waiting for " + names
	if w.Holder != "" {
		text += ": held by " + OwnerOf(w.Holder).String()
	}
	if w.Position > 1 {
		text += ", " + Plural(w.Position-1, "waiter", "waiters") + " ahead"
	}
	return text
}

// Line formats the wait, and how long it has lasted, as a single line shorter than width: a line
// that wraps cannot be erased.
func (w Wait) Line(waited time.Duration, width int) string {
	rest := fmt.Sprintf(", %v", waited.Round(time.Second))
	name := Quoted(w.Names)
	line := "dibs: " + w.text(name) + rest
	if over := Cells(line) - width + 1; over > 0 {
		name = Shorten(name, max(Cells(name)-over, Shortest))
		line = "dibs: " + w.text(name) + rest
	}
	return Cut(line, width-1)
}
