package etcdstore

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A value is the JSON in an entry of dibs.
type value struct {
	Token    string `json:"dibs"`
	Client   string `json:"client"`
	Weight   int    `json:"weight"`
	Limit    int    `json:"limit"`
	TTL      int64  `json:"ttl"`                // ms; no renewal since the last change was for longer; the etcd lease lasts slightly longer
	Fence    uint64 `json:"fence,omitempty"`    // recorded by a renewal
	Queued   bool   `json:"queued,omitempty"`   // it joined behind others, so its creation was no grant
	Resized  bool   `json:"resized,omitempty"`  // the last change was a resize, which is its grant
	Reserved bool   `json:"reserved,omitempty"` // the holder released its lease
	Several  bool   `json:"several,omitempty"`  // it belongs to a multi-lock
	Since    int64  `json:"since,omitempty"`    // ms since 1970 by the client's clock: when it joined or, if it waited, its first renewal; for Inspect only
}

func (v value) String() string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has no field that cannot be encoded
	}
	return string(text)
}

func (v value) exclusive() bool { return v.Weight == v.Limit }

// An entry is a holder or a waiter.
type entry struct {
	value
	key     string
	created int64 // the revision that created the key: the order in the queue
	changed int64 // the revision of the last change
	lease   clientv3.LeaseID
	foreign bool   // another program wrote it: exclusive
	kind    string // a foreign entry's kind
	label   string // a foreign entry's label
}

// newEntry reads an entry of the queue with this prefix. It returns false for a key in a folder
// below, which belongs to a lock of another library.
func newEntry(prefix string, kv *mvccpb.KeyValue) (entry, bool) {
	id := strings.TrimPrefix(string(kv.Key), prefix)
	if strings.Contains(id, "/") {
		return entry{}, false
	}
	e := entry{key: string(kv.Key), created: kv.CreateRevision, changed: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}
	if json.Unmarshal(kv.Value, &e.value) != nil || e.Token == "" || !e.valid() {
		e.foreign, e.value = true, value{Token: id, Weight: 1, Limit: 1}
		e.kind, e.label = recognise(id, kv)
	}
	return e, true
}

// valid reports whether the numbers are those of a request.
func (v value) valid() bool {
	return 1 <= v.Weight && v.Weight <= v.Limit && v.Limit <= driver.Unlimited && 0 <= v.TTL && v.TTL <= milliseconds(math.MaxInt64-time.Second)
}

// fenceRevision returns the revision that made the entry a holder, or zero if the entry does not
// say.
func (e entry) fenceRevision() int64 {
	switch {
	case e.Resized:
		return e.changed
	case e.Queued || e.foreign:
		return 0
	default:
		return e.created
	}
}

func (v value) ttl() time.Duration { return time.Duration(v.TTL) * time.Millisecond }

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// A queue is the entries of a name, in their order.
type queue []entry

// readQueue returns the entries among some keys.
func readQueue(prefix string, kvs []*mvccpb.KeyValue) queue {
	q := make(queue, 0, len(kvs))
	for _, kv := range kvs {
		if e, ok := newEntry(prefix, kv); ok {
			q = append(q, e)
		}
	}
	q.sort()
	return q
}

func (q queue) sort() {
	slices.SortFunc(q, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.key, b.key))
	})
}

// granted returns how many entries hold the name, or wait first for further names: the first
// entries whose weights fit. Entries join at the end, so a grant does not end when others join.
func (q queue) granted() int {
	held := 0
	for i, e := range q {
		switch {
		case i == 0:
		case e.exclusive() || q[0].exclusive() || held+e.Weight > e.Limit:
			return i
		}
		held += e.Weight
	}
	return len(q)
}

// find returns the index of a token's entry, or -1.
func (q queue) find(token string) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.Token == token && !e.foreign })
}

// holder returns the index of a token's entry if it holds the name, or reserves it, and -1 otherwise.
func (q queue) holder(token string) int {
	i := q.find(token)
	if i >= q.granted() || i >= 0 && q[i].pending() {
		return -1
	}
	return i
}

// findKey returns the index of a key's entry, or -1.
func (q queue) findKey(key string) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.key == key })
}

// pending reports whether the entry belongs to a multi-lock that still waits for another name, or
// has not yet asked again since then.
func (e entry) pending() bool { return e.Several && e.Queued }

// holders returns the entries that hold the name.
func (q queue) holders() queue {
	return slices.DeleteFunc(slices.Clone(q[:q.granted()]), entry.pending)
}

// waiters returns the entries that wait.
func (q queue) waiters() queue {
	n := q.granted()
	first := slices.DeleteFunc(slices.Clone(q[:n]), func(e entry) bool { return !e.pending() })
	return append(first, q[n:]...)
}
