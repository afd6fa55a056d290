package kvstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// A record is a name's value: its lock, and data for the next operation on it.
type record struct {
	Lock
	Fence   uint64        `json:"f"`           // the name's fence high-water mark
	Ticket  uint64        `json:"n,omitempty"` // its largest ticket
	Changed time.Duration `json:"u"`           // when it was written, as Now.At
	Writer  uint64        `json:"k"`           // random, not zero: it identifies the Swap that wrote it
}

// A stored record was read from the bucket. It is missing if the revision is zero.
type stored struct {
	record
	text     []byte
	revision uint64
}

func decodeStored(key string, v Value) (s stored, err error) {
	if v.Revision == 0 {
		return stored{}, nil
	}
	if err = json.Unmarshal(v.Bytes, &s.record); err == nil {
		err = s.Check()
	}
	if err == nil && s.Writer == 0 {
		err = errNoWriter
	}
	if err != nil {
		return stored{}, &wrongType{key, isNoLock, err}
	}
	s.text, s.revision = v.Bytes, v.Revision
	return s, nil
}

var errNoWriter = errors.New("dibs has not written it")

// table returns the name's lock table. A change to the table can change the record, but not its
// text.
func (r record) table(name string) *Table {
	t := NewTable()
	t.Fence, t.Ticket = r.Fence, r.Ticket
	if r.used() {
		t.Names[name] = &r.Lock
	}
	return t
}

// with returns the record with a table's content.
func (r record) with(t *Table, name string) record {
	r.Lock, r.Fence, r.Ticket = Lock{}, t.Fence, t.Ticket
	if lock := t.Names[name]; lock != nil {
		r.Lock = *lock
	}
	return r
}

func (r record) used() bool { return len(r.Holders)+len(r.Queue) > 0 }

// now returns the time for an operation on the record. It is not before the last operation, which
// may have read another of the service's clocks a moment earlier. A clock set back by more counts
// as it is: all clients must use the same time.
func (r record) now(at time.Time) Now {
	const near = time.Second
	now := Now{At: time.Duration(at.UnixNano()), Wall: at}
	if behind := r.Changed - now.At; 0 < behind && behind < near {
		now.At = r.Changed
	}
	return now
}

// isChanged reports whether a record, made by with, differs from the stored record.
func (s stored) isChanged(next record) (bool, error) {
	if s.revision == 0 {
		return next.used(), nil
	}
	text, err := json.Marshal(next)
	return !bytes.Equal(text, s.text), err
}
