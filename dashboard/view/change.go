package view

import (
	"fmt"
	"strings"
	"time"
)

// The values of Change.Event. Changes are found by polling the store, so states shorter than the
// time between two polls may be missing.
const (
	EventHeld      = "held"       // held when watch began
	EventWaiting   = "waiting"    // a waiter joined the queue
	EventGone      = "gone"       // a waiter gave up, died, or held and released between two polls
	EventAcquired  = "acquired"   // acquired by a holder that was not seen waiting
	EventHandedOff = "handed_off" // acquired by a waiter
	EventReserved  = "reserved"   // released, but unavailable until MinHold ends
	EventReleased  = "released"   // released, or revoked elsewhere
	EventRevoked   = "revoked"    // revoked by a request to this program
	EventExpired   = "expired"    // gone at its expiry time
	EventChanged   = "changed"    // a count changed, and the lists are incomplete
	EventAway      = "away"       // the store does not answer
	EventBack      = "back"
)

// A Change is a line in watch's output: a difference between two polls.
type Change struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // EventHeld and so on
	Name    string    `json:"name,omitempty"`
	Holder  *Holder   `json:"holder,omitempty"`
	From    *Holder   `json:"from,omitempty"` // for handed_off: the previous holder
	Waiter  *Waiter   `json:"waiter,omitempty"`
	Waited  int64     `json:"waited_ms,omitempty"`
	Held    int64     `json:"held_ms,omitempty"`
	Holding int       `json:"holding"` // current numbers of holders and waiters
	Waiting int       `json:"waiting"`
	User    string    `json:"user,omitempty"` // for revoked: who, and why
	Reason  string    `json:"reason,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// Text formats a change for people, on a single line. It shortens a name that does not fit into
// width, unless width is zero.
func (s Change) Text(width int) string {
	who, more := s.Columns()
	name := Safe(s.Name)
	text := func() string {
		line := []string{s.Time.Local().Format("15:04:05.000"), fmt.Sprintf("%-10s", strings.ReplaceAll(s.Event, "_", " ")), name, who, more}
		return strings.TrimRight(strings.Join(line, "  "), " ")
	}
	if over := Cells(text()) - width; width > 0 && over > 0 {
		name = Shorten(name, max(Cells(name)-over, Shortest))
	}
	return text() + "\n"
}

// Columns returns who the change is about, and further details.
func (s Change) Columns() (who, more string) {
	waited := "waited " + Brief(time.Duration(s.Waited)*time.Millisecond)
	switch {
	case s.Event == EventRevoked && s.Holder != nil:
		return s.Holder.String(), Safe("by " + s.User + ": " + s.Reason)
	case s.Waiter != nil && s.Event == EventWaiting:
		return s.Waiter.String(), fmt.Sprintf("position %d", s.Waiter.Position)
	case s.Waiter != nil:
		return s.Waiter.String(), waited
	case s.Holder == nil:
		return fmt.Sprintf("%s, %s", Plural(s.Holding, "holder", "holders"), Plural(s.Waiting, "waiter", "waiters")), ""
	case s.From != nil:
		return s.Holder.String(), waited + ", after " + s.From.String()
	case s.Event == EventHandedOff:
		return s.Holder.String(), waited
	case s.Held > 0:
		return s.Holder.String(), "held " + Brief(time.Duration(s.Held)*time.Millisecond)
	case s.Event == EventReleased, s.Event == EventExpired:
		return s.Holder.String(), ""
	case s.Holder.Left() < 0:
		return s.Holder.String(), "never expires"
	}
	return s.Holder.String(), "ttl " + Brief(s.Holder.Left())
}
