package zkstore

import (
	"context"
	"encoding/binary"
)

// A departure is a watch of an entry by one waiter.
type departure struct {
	done chan struct{} // closed when the entry left or changed, or when the connection ended

	// zxid is the change with which the entry left for certain. Otherwise it is zero: a move also
	// deletes an entry, but it first changes it.
	zxid int64
}

// departures are a waiter's watches, by path.
type departures map[string]*departure

func (ds departures) forgo(l *link) {
	for path, d := range ds {
		l.forgo(path, d)
	}
}

// over reports whether the watch ended.
func (d *departure) over() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// departs watches an entry. If the entry does not exist, it returns nil. The caller calls forgo when
// it needs the watch no more.
func (l *link) departs(ctx context.Context, path string) (*departure, error) {
	d := &departure{done: make(chan struct{})}
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, errEnded
	}
	l.departures[path] = append(l.departures[path], d)
	l.mu.Unlock()
	exists, err := l.armData(ctx, path)
	if err != nil || !exists {
		l.forgo(path, d)
		return nil, err
	}
	return d, nil
}

// forgo ends a watch.
func (l *link) forgo(path string, d *departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.departures[path]
	for i, other := range all {
		if other == d {
			l.departures[path] = append(all[:i:i], all[i+1:]...)
		}
	}
	if len(l.departures[path]) == 0 {
		delete(l.departures, path)
	}
}

// depart ends the watches of an entry. The caller holds the lock.
func (l *link) depart(path string, zxid int64) {
	for _, d := range l.departures[path] {
		d.zxid = zxid
		close(d.done)
	}
	delete(l.departures, path)
}

// departAll ends all watches: a connection ended. The caller holds the lock.
func (l *link) departAll() {
	for path := range l.departures {
		l.depart(path, 0)
	}
}

// An eventReader finds the zxid of the last event in what a server sends: the library does not tell it.
// Before version 3.9, a server sends -1.
type eventReader struct {
	head []byte // of a message
	rest int    // bytes of the message that follow
	zxid int64  // of the last event
}

// headBytes are those of a message's length, request number and zxid.
const headBytes = 16

// eventNumber is in the place of a request's number.
const eventNumber = -1

func (r *eventReader) read(b []byte) {
	for len(b) > 0 {
		if r.rest > 0 {
			n := min(r.rest, len(b))
			b, r.rest = b[n:], r.rest-n
			continue
		}
		n := min(headBytes-len(r.head), len(b))
		r.head = append(r.head, b[:n]...)
		b = b[n:]
		if len(r.head) < headBytes {
			return
		}
		if int32(binary.BigEndian.Uint32(r.head[4:])) == eventNumber {
			r.zxid = int64(binary.BigEndian.Uint64(r.head[8:]))
		}
		const lengthBytes = 4
		r.rest = int(binary.BigEndian.Uint32(r.head)) - (headBytes - lengthBytes)
		r.head = r.head[:0]
	}
}
