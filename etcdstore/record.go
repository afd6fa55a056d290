package etcdstore

import (
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver/inbox"
)

// A record is this process's knowledge about an entry. Other processes can delete or change the entry,
// so the record can be outdated: etcd decides.
type record struct {
	name    string
	token   string
	key     string
	request string // distinguishes this process's requests to add an entry; empty if another process added it
	number  uint64 // distinguishes records with the same name and token

	session *session // nil: unknown, for example because another process moved the entry
	value   value
	created int64         // the revision that created the entry; zero: unknown, because an acquire got no answer
	changed int64         // the revision of its last known change
	held    bool          // the entry is a holder
	fence   uint64        // if held
	expires time.Duration // without another request, the entry should end then; zero: it does not, or is being ended

	// inDoubt means that a request to add the entry got no answer. It can arrive at any time, so the
	// end of the entry needs a mark.
	inDoubt bool

	// ending means that a request to end the entry was sent. It can arrive at any time, so the entry
	// cannot be used any more.
	ending bool

	spare    *session // for this entry alone, but not its session: the entry may move to it
	reserves *session // for a reservation, if the request for it got no answer
	wait     *wait    // notifies a client of the entry's grant; or nil
}

// A wait notifies a client of a grant.
type wait struct {
	in   *inbox.Inbox
	stop func()
}

// id returns the last part of the entry's key.
func (rec record) id() string { return rec.key[strings.LastIndexByte(rec.key, '/')+1:] }

type recordKey struct{ name, token string }

// records are the entries known to this process. It is safe for concurrent use: callers read copies
// of a record.
type records struct {
	mu   sync.Mutex
	all  map[recordKey]*record
	ids  ids
	last uint64 // the last record's number
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

// add adds a record, with a new key unless it has a key already. It returns false if the name and
// token have a record.
func (rs *records) add(r *record, queue string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	k := recordKey{r.name, r.token}
	if rs.all[k] != nil {
		return false
	}
	if r.key == "" {
		r.key, r.request = queue+rs.ids.unused(r.name, time.Now()), rs.ids.request()
	}
	rs.last++
	r.number = rs.last
	kept := *r
	rs.all[k] = &kept
	return true
}

// change changes a record. It returns false if the record was removed.
func (rs *records) change(r record, change func(*record)) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := rs.all[recordKey{r.name, r.token}]
	if now == nil || now.number != r.number {
		return false
	}
	change(now)
	return true
}

// update is change, but also returns false if the end of the entry was requested.
func (rs *records) update(r record, change func(*record)) (ok bool) {
	return rs.change(r, func(now *record) {
		if ok = !now.ending; ok {
			change(now)
		}
	}) && ok
}

// remove removes a record, and returns its last state. Its key can be used again, unless a late
// request can add it.
func (rs *records) remove(r record) (last record, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	k := recordKey{r.name, r.token}
	now := rs.all[k]
	if now == nil || now.number != r.number {
		return record{}, false
	}
	now.endWait(now.wait)
	delete(rs.all, k)
	switch {
	case now.request == "":
	case now.inDoubt:
		rs.ids.giveLater(now.name, now.id(), time.Now())
	default:
		rs.ids.give(now.name, now.id())
	}
	return *now, true
}

// endWait ends a wait, unless the record has another. The caller holds the lock.
func (rec *record) endWait(w *wait) {
	if rec.wait != nil && rec.wait == w {
		rec.wait = nil
		w.stop()
	}
}

// expired returns the entries that should have ended, and when the next one should end, or zero.
// They cannot be used any more.
func (rs *records) expired(now time.Duration) (over []record, next time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		switch {
		case r.expires == 0:
		case r.expires <= now:
			r.ending, r.expires = true, 0
			over = append(over, *r)
		case next == 0 || r.expires < next:
			next = r.expires
		}
	}
	return over, next
}
