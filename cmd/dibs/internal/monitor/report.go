package monitor

import (
	"fmt"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
)

// A Report says that a fault of the store has begun or ended.
type Report struct {
	Kind     Kind
	Location string   // of the store, without credentials
	Names    []string // requested or held
	Holding  bool     // the names are held
	Err      error    // the cause of a fault

	Left  time.Duration // of Away, if the names are held: time until the lease is lost
	After time.Duration // of Back and Notified: length of the fault
}

// A Kind is what a Report is about.
type Kind int

// The kinds of reports.
const (
	Away     Kind = iota // the store does not answer
	Degraded             // the store answers, but sends no notifications
	Back                 // the end of Away
	Notified             // the end of Degraded
)

// Text formats a report for people, without a line end.
func (r Report) Text() string {
	activity := "waiting for " + view.Quoted(r.Names)
	if r.Holding {
		activity = "holding " + view.Quoted(r.Names)
	}
	return activity + ": " + r.fault()
}

func (r Report) fault() string {
	cause := view.ErrorText(r.Err) + "; store: " + r.Location
	switch {
	case r.Kind == Back:
		return "the store answers again, after " + view.Brief(r.After)
	case r.Kind == Notified:
		return "notifications from the store again, after " + view.Brief(r.After)
	case r.Kind == Degraded:
		return "no notifications from the store, polling instead: " + cause
	case r.Holding:
		return fmt.Sprintf("cannot renew, %s left: %s", view.Brief(r.Left), cause)
	}
	return "the store does not answer, trying again: " + cause
}

// Event returns the report as an event of now.
func (r Report) Event(now time.Time) view.StoreEvent {
	name := map[Kind]string{Away: "away", Degraded: "degraded", Back: "back", Notified: "back"}[r.Kind]
	return view.StoreEvent{
		Stamp: view.Stamped(name, now), Names: r.Names, Store: r.Location,
		Left: r.Left.Milliseconds(), Away: r.After.Milliseconds(), Error: view.ErrorText(r.Err),
	}
}
