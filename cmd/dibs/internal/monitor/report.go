package monitor

import (
	"fmt"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
)

// A Report says that a store's fault began or ended.
type Report struct {
	Kind     Kind
	Location string   // the store's location, without credentials
	Names    []string // requested or held
	Holding  bool     // the names are held
	Err      error    // a fault's cause

	Left  time.Duration // for Away, if the names are held: time until the lease is lost
	After time.Duration // for Back and Notified: length of the fault
}

// A Kind is a report's subject.
type Kind int

// Kinds of reports.
const (
	Away     Kind = iota // the store does not answer
	Degraded             // the store answers, but sends no notifications
	Back                 // ends Away
	Notified             // ends Degraded
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

// Event returns the report as an event that happens now.
func (r Report) Event(now time.Time) view.StoreEvent {
	name := map[Kind]string{Away: "away", Degraded: "degraded", Back: "back", Notified: "back"}[r.Kind]
	return view.StoreEvent{
		Stamp: view.Stamped(name, now), Names: r.Names, Store: r.Location,
		Left: r.Left.Milliseconds(), Away: r.After.Milliseconds(), Error: view.ErrorText(r.Err),
	}
}
