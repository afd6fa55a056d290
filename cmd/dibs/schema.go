package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
)

// schema is the version of the JSON output. New fields do not change it. Fields are never
// removed and never change their meaning.
const schema = 1

// Durations are in whole milliseconds, times in RFC 3339. Tokens are shortened to host
// and process, except with --show-token: whoever has a whole token can release the lock.

// A nameState is the state of a name, as ls and show print it.
type nameState struct {
	Schema  int      `json:"schema"`
	Name    string   `json:"name"`
	State   string   `json:"state"`          // held, free, wrong_type
	Kind    string   `json:"kind,omitempty"` // mutex, shared, permits
	Holders []holder `json:"holders"`
	Holding int      `json:"holding"`
	Waiters []waiter `json:"waiters"`
	Waiting int      `json:"waiting"`
	Fence   uint64   `json:"fence,omitempty"` // of an exclusive holder

	wholeTokens bool // tokens are
}

type holder struct {
	Token    string    `json:"token"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Label    string    `json:"label,omitempty"`
	Fence    uint64    `json:"fence,omitempty"`
	Since    time.Time `json:"since,omitzero"`     // from the fence
	Weight   int       `json:"weight,omitempty"`   // of a shared holder; 0: exclusive
	TTL      *int64    `json:"ttl_ms"`             // null: never expires
	Reserved bool      `json:"reserved,omitempty"` // released, but unavailable until MinHold ends
}

type waiter struct {
	Token    string `json:"token"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Label    string `json:"label,omitempty"`
	Position int    `json:"position"`
	Waited   int64  `json:"waited_ms"`
}

// A change is a line of watch: a difference between two polls.
type change struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // see the constants in watch.go
	Name    string    `json:"name,omitempty"`
	Holder  *holder   `json:"holder,omitempty"`
	From    *holder   `json:"from,omitempty"` // of handed_off: the previous holder
	Waiter  *waiter   `json:"waiter,omitempty"`
	Waited  int64     `json:"waited_ms,omitempty"`
	Held    int64     `json:"held_ms,omitempty"`
	Holding int       `json:"holding"` // current numbers of holders and waiters
	Waiting int       `json:"waiting"`
	Error   string    `json:"error,omitempty"`
}

// An event is a line about the work of dibs itself, with --json. It goes to stderr,
// because stdout belongs to the command.
type event struct {
	Schema   int       `json:"schema"`
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Name     string    `json:"name,omitempty"`
	Names    []string  `json:"names,omitempty"`
	Token    string    `json:"token,omitempty"`
	Fence    uint64    `json:"fence,omitempty"`
	Holder   string    `json:"holder,omitempty"`
	Position int       `json:"position,omitempty"`
	Waited   int64     `json:"waited_ms,omitempty"`
	Held     int64     `json:"held_ms,omitempty"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Label    string    `json:"label,omitempty"`
	Store    string    `json:"store,omitempty"` // without credentials
	Left     int64     `json:"left_ms,omitempty"`
	Away     int64     `json:"away_ms,omitempty"`
	Error    string    `json:"error,omitempty"`
	Code     int       `json:"code,omitempty"`
}

// event prints an event on stderr.
func (a *app) event(e event) { _ = printLine(a.err, stamped(e)) } // a failure cannot be reported anywhere

func stamped(e event) event {
	e.Schema, e.Time = schema, time.Now().UTC().Truncate(time.Millisecond)
	return e
}

// printLine writes a value as one line of JSON, in one write.
func printLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(escaped(line), '\n'))
	return err
}

// escaped escapes the runes that JSON allows but a terminal may interpret. They occur
// inside strings only.
func escaped(line []byte) []byte {
	var out []byte
	for _, r := range string(line) {
		if unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// An owner is the public part of an owner token.
type owner struct {
	host, label string
	pid         int
	short       string // the token without its secret
}

// ownerOf parses a token of dibs: host:pid:random:secret, optionally with a label. It
// keeps only host, pid and label. Other tokens are opaque.
func ownerOf(token string) owner {
	const random = 16 // characters, at least
	parts := strings.SplitN(token, ":", 5)
	if len(parts) >= 4 && parts[0] != "" && len(parts[2]) >= random && parts[3] != "" {
		if pid, err := strconv.Atoi(parts[1]); err == nil && pid > 0 {
			return owner{host: parts[0], pid: pid, label: driver.LabelOf(token), short: parts[0] + ":" + parts[1] + ":…"}
		}
	}
	const known, public = 8, 2 // so short a value is not a secret
	r := []rune(token)
	if len(r) <= public {
		return owner{short: token}
	}
	return owner{short: string(r[:min(known, len(r)/2)]) + "…"}
}

// String formats the owner for people.
func (o owner) String() string {
	s := o.short
	if o.host != "" {
		s = fmt.Sprintf("%s:%d", o.host, o.pid)
	}
	if o.label != "" {
		s += " (" + o.label + ")"
	}
	return safe(s)
}
