package etcdstore

import (
	"sync"
	"time"
)

// A record is what this process knows about an entry that it made. Other processes can delete or
// change the entry, so etcd decides.
type record struct {
	name    string
	token   string
	key     string
	id      string
	session *session

	value   value
	created int64         // zero: unknown, because an acquire got no answer
	held    bool          // the entry is a holder
	fence   uint64        // if held
	expires time.Duration // without another request, the entry should end then

	stopWait func() // stops the goroutine that waits for the grant; nil if there is none
}

type recordKey struct{ name, token string }

// records are the entries made by this process. It is safe for concurrent use: a record is read and
// changed by copies.
type records struct {
	mu  sync.Mutex
	all map[recordKey]*record
	ids ids
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
	rs.all[recordKey{r.name, r.token}] = &r
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
	k := recordKey{r.name, r.token}
	if now := rs.all[k]; now != nil && now.key == r.key {
		if now.stopWait != nil {
			now.stopWait()
		}
		delete(rs.all, k)
		if reusable {
			rs.ids.give(r.id)
		}
	}
}

// newID returns an ID for an entry's key.
func (rs *records) newID() string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.ids.take()
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
