package etcdstore

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
)

// ids are the last parts of this store's keys. An ID is used again after its entry ended: etcd keeps
// deleted keys until a compaction, and reads them with the others. An ID must be given back only
// once, and only if no late request can add its key. The caller locks it.
type ids struct {
	store string // distinguishes stores
	next  int
	free  []string // last given first, so few are in use
}

func newIDs() ids {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	return ids{store: hex.EncodeToString(random)}
}

func (i *ids) take() string {
	if last := len(i.free) - 1; last >= 0 {
		id := i.free[last]
		i.free = i.free[:last]
		return id
	}
	id := i.store + "-" + strconv.FormatInt(int64(i.next), 36)
	i.next++
	return id
}

func (i *ids) give(id string) { i.free = append(i.free, id) }
