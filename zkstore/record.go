package zkstore

import (
	"sync"
	"time"

	"github.com/dibslock/dibs/driver/inbox"
)

// A record is this process's knowledge about an entry. Other processes can delete or move the entry,
// so the record can be outdated: ZooKeeper decides.
type record struct {
	name   string
	token  string
	number uint64 // distinguishes records with the same name and token

	session *session // nil: unknown, because another process made the entry; or the entry is persistent
	owner   int64    // the ID of a found entry's session
	entry   entry    // without a name: an acquire got no answer
	value   value
	version int32 // of a persistent entry, after this process wrote it

	ticket  uint64 // of a waiter: the zxid that created the entry
	held    bool   // the entry is a holder
	fence   uint64
	expires time.Duration // without another request, the entry should end then; zero: it does not, or is being ended

	// late is closed when the request that adds the entry was answered: then it cannot take effect any
	// more. It is nil if no request is on its way.
	late <-chan struct{}

	// ending means that a request to end the entry was sent. The entry cannot be used any more.
	ending bool

	// recorded means that the entry says its fence, and that a watch tells when the entry ends.
	recorded bool
	gone     <-chan struct{} // closed when the entry may have changed or ended
	moved    bool            // it is not in its znode

	follows bool   // the entry has the number after that of the last visit
	base    uint64 // of the fences, when the entry was added

	severalNames bool // it belongs to a multi-lock

	wait *wait // notifies a client of the entry's grant; or nil
}

// A wait notifies a client of a grant.
type wait struct {
	in   *inbox.Inbox
	stop func()
}

type recordKey struct{ name, token string }

// records are the entries known to this process. It is safe for concurrent use: callers read copies
// of a record.
type records struct {
	mu   sync.Mutex
	all  map[recordKey]*record
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

// add adds a record. It returns false if the name and token have a record.
func (rs *records) add(r *record) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	k := recordKey{r.name, r.token}
	if rs.all[k] != nil {
		return false
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

// remove removes a record, and returns its last state.
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
