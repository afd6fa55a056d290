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

// schema is the version of all that --json prints: fields are added to it without a new
// number, and never taken away or given another meaning.
const schema = 1

// Durations are in whole milliseconds, times in RFC 3339. Of a token there are host and
// process only, unless --show-token: who has a whole one can release the lock.

// A nameState is what ls and show print of a name.
type nameState struct {
	Schema  int      `json:"schema"`
	Name    string   `json:"name"`
	State   string   `json:"state"`          // held, free, foreign
	Kind    string   `json:"kind,omitempty"` // mutex, shared, permits
	Holders []holder `json:"holders"`
	Holding int      `json:"holding"`
	Waiters []waiter `json:"waiters"`
	Waiting int      `json:"waiting"`
	Fence   uint64   `json:"fence,omitempty"` // of the holder, if there is one that holds alone

	wholeTokens bool // tokens are
}

type holder struct {
	Token    string    `json:"token"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Label    string    `json:"label,omitempty"`
	Fence    uint64    `json:"fence,omitempty"`
	Since    time.Time `json:"since,omitzero"`   // as the fence tells
	Weight   int       `json:"weight,omitempty"` // of a part, none: it holds alone
	TTL      *int64    `json:"ttl_ms"`           // null: never expires
	Reserved bool      `json:"kept,omitempty"`   // given back, and taken for a while yet
}

type waiter struct {
	Token    string `json:"token"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Label    string `json:"label,omitempty"`
	Position int    `json:"position"`
	Waited   int64  `json:"waited_ms"`
}

// A sighting is a line of watch: what was found to have changed between two looks.
type change struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // see the constants in watch.go
	Name    string    `json:"name,omitempty"`
	Holder  *holder   `json:"holder,omitempty"`
	From    *holder   `json:"from,omitempty"` // of handed_on: who held before
	Waiter  *waiter   `json:"waiter,omitempty"`
	Waited  int64     `json:"waited_ms,omitempty"`
	Held    int64     `json:"held_ms,omitempty"`
	Holding int       `json:"holding"` // how many hold the name, and wait for it, now
	Waiting int       `json:"waiting"`
	Error   string    `json:"error,omitempty"`
}

// An event is a line that dibs says of its own work with --json, on stderr where stdout
// is the command's.
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
func (a *app) event(e event) { _ = printLine(a.err, stamped(e)) } // nobody else could be told

func stamped(e event) event {
	e.Schema, e.Time = schema, time.Now().UTC().Truncate(time.Millisecond)
	return e
}

// print1 prints a value as one line of JSON, in one write.
func printLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(escaped(line), '\n'))
	return err
}

// escaped escapes what JSON allows, and a terminal might obey: such runes stand in
// strings only.
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

// An owner is what a token that dibs made tells of who has it.
type owner struct {
	host, label string
	pid         int
	short       string // the token, as far as anybody may know it
}

// ownerOf reads a token: host:pid:random:secret, and perhaps a label. Nothing of what
// follows host and pid is shown. Others are opaque.
func ownerOf(token string) owner {
	const random = 16 // letters, at least
	parts := strings.SplitN(strings.TrimSuffix(token, driver.ReservedSuffix), ":", 5)
	if len(parts) >= 4 && parts[0] != "" && len(parts[2]) >= random && parts[3] != "" {
		if pid, err := strconv.Atoi(parts[1]); err == nil && pid > 0 {
			return owner{host: parts[0], pid: pid, label: driver.LabelOf(token), short: parts[0] + ":" + parts[1] + ":…"}
		}
	}
	const known, public = 8, 2 // of so few letters nothing is a secret
	r := []rune(token)
	if len(r) <= public {
		return owner{short: token}
	}
	return owner{short: string(r[:min(known, len(r)/2)]) + "…"}
}

// String is for people.
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
