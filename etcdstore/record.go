package etcdstore

import (
	"strings"
	"sync"
	"time"
)

// A record is what this process knows about an entry that it made. Other processes can delete or
// change the entry, so etcd decides.
type record struct {
	name    string
	token   string
	key     string
	request string // distinguishes the acquire for a Cancel
	session *session

	value   value
	created int64         // zero: unknown, because an acquire got no answer
	held    bool          // the entry is a holder
	fence   uint64        // if held
	expires time.Duration // without another request, the entry should end then

	stopWait func() // stops the goroutine that waits for the grant; nil if there is none
}

// id returns the last part of the entry's key.
func (r record) id() string { return r.key[strings.LastIndexByte(r.key, '/')+1:] }

type recordKey struct{ name, token string }

// records are the entries made by this process. It is safe for concurrent use: a record is read and
// changed by copies.
type records struct {
	mu  sync.Mutex
	all map[recordKey]*record
	ids ids
}

// count returns the number of entries.
func (rs *records) count() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(rs.all)
}

// get returns a copy of a record.
func (rs *records) get(name, token string) (record, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.all[recordKey{name, token}]; r != nil {
		return *r, true
	}
	return record{}, false
}

// put records an entry.
func (rs *records) put(r record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	k := recordKey{r.name, r.token}
	if old := rs.all[k]; old != nil && old.key != r.key {
		rs.forget(*old, false)
	}
	rs.all[k] = &r
}

// change changes the record of an entry, unless it is another entry by now. It returns false then.
func (rs *records) change(name, token, key string, change func(*record)) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[recordKey{name, token}]
	if r == nil || r.key != key {
		return false
	}
	change(r)
	return true
}

// remove forgets an entry. reusable means that no late request can concern its key.
func (rs *records) remove(r record, reusable bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if now := rs.all[recordKey{r.name, r.token}]; now != nil && now.key == r.key {
		rs.forget(*now, reusable)
	}
}

// forget is remove for the current record. The caller holds the lock.
func (rs *records) forget(r record, reusable bool) {
	if r.stopWait != nil {
		r.stopWait()
	}
	delete(rs.all, recordKey{r.name, r.token})
	if reusable {
		rs.ids.give(r.name, r.id())
	} else {
		rs.ids.giveLater(r.name, r.id(), time.Now())
	}
}

// add records an entry for a new request. It completes the record's key, which is that of the queue.
func (rs *records) add(r record) record {
	rs.mu.Lock()
	id := rs.ids.take(r.name, time.Now())
	r.request = rs.ids.request()
	rs.mu.Unlock()
	r.key += id
	rs.put(r)
	return r
}

// expired returns the entries on shared sessions that should have ended, and when the next one
// should end, or zero.
func (rs *records) expired(now time.Duration) (over []record, next time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		switch {
		case r.expires == 0:
		case r.expires <= now:
			over = append(over, *r)
		case next == 0 || r.expires < next:
			next = r.expires
		}
	}
	return over, next
}
