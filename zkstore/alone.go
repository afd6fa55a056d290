package zkstore

import (
	"context"
	"sync"
	"time"
)

// A visit is this process's last lease of a name. It tells whether the next entry is alone in the
// queue, without a read.
//
// ZooKeeper numbers all entries of a queue. An exclusive holder is the first. So if its process
// deletes its entry and adds one with the next number, no other entry is there. But after the znode
// of the queue ended, ZooKeeper counts from zero again. A watch tells whether it ended: on a
// connection, a server sends the event before the answer to a later request.
type visit struct {
	link  *link
	seq   int32
	fence uint64
	base  uint64 // of the fence

	wire *wire           // the connection with the watch; nil: no watch
	gone <-chan struct{} // closed when the queue's znode changes or ends
}

// follows reports whether an entry on a link is the next one after the visit, as far as numbers tell.
func (v visit) follows(l *link, seq int32) bool { return v.link == l && v.seq+1 == seq }

// watches reports whether a watch tells since the visit that the queue's znode did not end.
func (v visit) watches(l *link) bool {
	if v.wire == nil || v.link != l || v.wire != l.connection() {
		return false
	}
	select {
	case <-v.gone:
		return false
	default:
		return true
	}
}

// mostVisits is for how many names visits are kept.
const mostVisits = 1024

// visits are the visits by name. They are safe for concurrent use.
type visits struct {
	mu  sync.Mutex
	all map[string]visit
}

func (vs *visits) get(name string) visit {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.all[name]
}

// set records a visit. If there are too many, it first forgets the others.
func (vs *visits) set(name string, v visit) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if len(vs.all) >= mostVisits {
		clear(vs.all)
	}
	vs.all[name] = v
}

// aloneAfter reports whether an entry is alone in its queue, as far as a visit tells, and its fence.
func (s *Store) aloneAfter(rec record, before visit) (fence uint64, alone bool) {
	l := rec.session.link
	if !before.follows(l, rec.entry.seq) || !before.watches(l) || before.base != rec.base {
		return 0, false
	}
	return before.fence + 1, true
}

// leave deletes the entry of an exclusive holder, and records the visit. After two visits without
// another process between them, it watches the queue's znode.
func (s *Store) leave(ctx context.Context, rec record) (removed bool, err error) {
	l := rec.session.link
	before := s.visits.get(rec.name)
	v := visit{link: l, seq: rec.entry.seq, fence: rec.fence, base: rec.base}
	if rec.follows {
		if v.wire, v.gone = before.wire, before.gone; !before.watches(l) {
			v.wire, v.gone = s.watchQueue(ctx, l, rec.name)
		}
	}
	if removed, err = s.end(ctx, rec); removed && err == nil {
		s.visits.set(rec.name, v)
	}
	return removed, err
}

// watchQueue watches a queue's znode. It returns nil if it cannot.
func (s *Store) watchQueue(ctx context.Context, l *link, name string) (*wire, <-chan struct{}) {
	const limit = time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w := l.connection()
	key := watchKey{path: s.keys.queue(name)}
	gone, _ := l.watch(key)
	exists, err := l.armData(ctx, key.path)
	switch {
	case err != nil || !exists:
		l.unwatch(key, gone)
		return nil, nil
	case l.connection() != w: // perhaps the watch is on the other
		return nil, nil
	}
	return w, gone
}
