package view

import "time"

// An event is a JSON line about the command's own work. Zero fields are omitted, except those in
// the Stamp.

// A Stamp is the beginning of each event.
type Stamp struct {
	Schema int       `json:"schema"`
	Time   time.Time `json:"time"`
	Event  string    `json:"event"` // docs/cli-json.md lists the values
}

// Stamped returns the stamp for an event at now.
func Stamped(event string, now time.Time) Stamp {
	return Stamp{Schema, now.UTC().Truncate(time.Millisecond), event}
}

// An ErrorEvent reports the error that ends the command.
type ErrorEvent struct {
	Stamp
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"` // exit code
}

// A WaitingEvent reports that the command joined a wait queue.
type WaitingEvent struct {
	Stamp
	Name     string `json:"name,omitempty"`
	Holder   string `json:"holder,omitempty"` // its token's public part
	Position int    `json:"position,omitempty"`
}

// An AcquiredEvent reports that the command holds the lock.
type AcquiredEvent struct {
	Stamp
	Names  []string `json:"names,omitempty"`
	Token  string   `json:"token,omitempty"` // its public part
	Fence  uint64   `json:"fence,omitempty"`
	Waited int64    `json:"waited_ms,omitempty"`
}

// A StartedEvent reports that the program runs under the lock.
type StartedEvent struct {
	Stamp
	Name string `json:"name,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// A StoreEvent reports that a store outage begins or ends.
type StoreEvent struct {
	Stamp
	Names []string `json:"names,omitempty"`
	Store string   `json:"store,omitempty"` // without credentials
	Left  int64    `json:"left_ms,omitempty"`
	Away  int64    `json:"away_ms,omitempty"`
	Error string   `json:"error,omitempty"`
}

// A LostEvent reports that the lock is lost, or about to be lost.
type LostEvent struct {
	Stamp
	Name  string `json:"name,omitempty"`
	Store string `json:"store,omitempty"` // without credentials
	Error string `json:"error,omitempty"`
}

// An EndedEvent reports the command's end.
type EndedEvent struct {
	Stamp
	Names  []string `json:"names,omitempty"`
	Fence  uint64   `json:"fence,omitempty"`
	Waited int64    `json:"waited_ms,omitempty"`
	Held   int64    `json:"held_ms,omitempty"`
	Store  string   `json:"store,omitempty"` // without credentials
	Away   int64    `json:"away_ms,omitempty"`
	Code   int      `json:"code,omitempty"` // exit code
}

// A LeaderEvent reports an election's leader.
type LeaderEvent struct {
	Stamp
	Name   string `json:"name,omitempty"`
	Fence  uint64 `json:"fence,omitempty"`  // the term
	Holder string `json:"holder,omitempty"` // its token's public part
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Label  string `json:"label,omitempty"`
}

// A ServingEvent reports that the dashboard can be opened.
type ServingEvent struct {
	Stamp
	Store string `json:"store,omitempty"` // without credentials
	URL   string `json:"url,omitempty"`   // with the key for serve --revoke
}

// A RevokedEvent reports that a dashboard user revoked a lease, or ended a foreign lock.
type RevokedEvent struct {
	Stamp
	Name   string `json:"name,omitempty"`
	Holder string `json:"holder,omitempty"` // its token's public part, and its label
	Fence  uint64 `json:"fence,omitempty"`
	User   string `json:"user,omitempty"` // who revoked: user and address
	Reason string `json:"reason,omitempty"`
}
