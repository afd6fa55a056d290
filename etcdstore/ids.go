package etcdstore

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// ids are the last parts of this store's keys. The keys of a name get the same few IDs again and
// again: etcd keeps deleted keys until a compaction, and reads them with the others. The caller
// locks it.
type ids struct {
	store    string // distinguishes stores
	requests int
	names    map[string]numbers // without the names that have no entry
	late     []lateID           // in the order of time
}

// numbers are a name's IDs. The others below next are in use.
type numbers struct {
	next int
	free []int
}

// A lateID can be used again when no request can be on its way.
type lateID struct {
	name, id string
	at       time.Time
}

// longestWay is how long a request can be on its way.
const longestWay = 5 * time.Minute

func newIDs() ids {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	return ids{store: hex.EncodeToString(random), names: make(map[string]numbers)}
}

// request returns a new ID for a request.
func (i *ids) request() string {
	i.requests++
	return i.id(i.requests)
}

func (i *ids) id(number int) string { return i.store + "-" + strconv.FormatInt(int64(number), 36) }

// unused returns an ID for an entry in a name's queue.
func (i *ids) unused(name string, now time.Time) string {
	for len(i.late) > 0 && !now.Before(i.late[0].at) {
		i.give(i.late[0].name, i.late[0].id)
		i.late = i.late[1:]
	}
	n := i.names[name]
	number := n.next
	if last := len(n.free) - 1; last >= 0 {
		number, n.free = n.free[last], n.free[:last]
	} else {
		n.next++
	}
	i.names[name] = n
	return i.id(number)
}

// give takes back an ID. It ignores an ID of another store.
func (i *ids) give(name, id string) {
	text, ours := strings.CutPrefix(id, i.store+"-")
	number, err := strconv.ParseInt(text, 36, 0)
	n, ok := i.names[name]
	switch {
	case !ours || err != nil || !ok:
	case len(n.free)+1 == n.next:
		delete(i.names, name)
	default:
		n.free = append(n.free, int(number))
		i.names[name] = n
	}
}

// giveLater takes back an ID that a late request may use.
func (i *ids) giveLater(name, id string, now time.Time) {
	i.late = append(i.late, lateID{name, id, now.Add(longestWay)})
}
