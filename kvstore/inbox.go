package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An inbox is the value of a client's key. Senders add events to it, and the client watches it. So
// a client needs only one watch, whatever it holds and awaits, and a change to a name concerns only
// the notified client.
type inbox struct {
	Dropped uint64  `json:"d,omitempty"` // the last removed event's number
	Entries []entry `json:"m"`           // the oldest first
}

// An entry is an event in transit.
type entry struct {
	Number uint64           `json:"s"` // grows in an inbox; at least the microseconds of the bucket's clock
	Kind   driver.EventKind `json:"k"`
	Token  string           `json:"t"`
	Fence  uint64           `json:"f,omitempty"`
	Ticket uint64           `json:"n,omitempty"`
	Reason string           `json:"r,omitempty"`
}

// The limits of an inbox. A waiter sends a heartbeat before an event for it is too old.
const (
	mostEntries = 64
	entryTTL    = driver.WaiterTTL
)

func decodeInbox(v Value) (m inbox) {
	if json.Unmarshal(v.Bytes, &m) != nil {
		return inbox{} // events are hints
	}
	return m
}

// last returns the last event's number.
func (m inbox) last() uint64 {
	if len(m.Entries) == 0 {
		return m.Dropped
	}
	return m.Entries[len(m.Entries)-1].Number
}

// isForeign reports whether another program wrote the inbox. Such an inbox is not replaced or
// deleted.
func (m inbox) isForeign() bool { return m.last() == 0 }

// add adds events, and removes old ones.
func (m *inbox) add(events []driver.Event, at time.Time) {
	for _, e := range events {
		number := max(m.last()+1, uint64(at.UnixMicro()))
		m.Entries = append(m.Entries, entry{number, e.Kind, e.Token, e.Fence, e.Ticket, e.Reason})
	}
	old := uint64(at.Add(-entryTTL).UnixMicro())
	for len(m.Entries) > mostEntries || len(m.Entries) > 0 && m.Entries[0].Number < old {
		m.Dropped = m.Entries[0].Number
		m.Entries = slices.Delete(m.Entries, 0, 1)
	}
}

// notify adds events to their clients' inboxes. It reports no error: a lost event costs only
// latency, and the reported change is already stored.
func (s *service) notify(ctx context.Context, notifications []Notification, at time.Time) {
	byClient := make(map[string][]driver.Event)
	var clients []string
	for _, n := range notifications {
		if byClient[n.Client] == nil {
			clients = append(clients, n.Client)
		}
		byClient[n.Client] = append(byClient[n.Client], n.Event)
	}
	each(len(clients), func(i int) { s.post(ctx, clients[i], byClient[clients[i]], at) })
}

// post adds events to an inbox.
func (s *service) post(ctx context.Context, client string, events []driver.Event, at time.Time) {
	key := encodeKey(inboxPrefix, client)
	done, err := s.turns.wait(ctx, key)
	if err != nil {
		return
	}
	defer done()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		v, err := s.bucket.Get(ctx, key)
		if err != nil {
			return
		}
		m := decodeInbox(v)
		if v.Revision != 0 && m.isForeign() {
			return
		}
		m.add(events, at)
		text, err := json.Marshal(m)
		if err != nil {
			return
		}
		if err := s.bucket.Swap(ctx, key, text, v.Revision); !errors.Is(err, ErrConflict) {
			return
		}
		if pause(ctx, attempt, time.Since(began)) != nil {
			return
		}
	}
}

// Watch implements Tables.
func (s *service) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	key := encodeKey(inboxPrefix, client)
	w := watcher{bucket: s.bucket, key: key, on: on}
	hints := make(chan struct{}, 1)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.sweepWhile(ctx, busy) })
	ended := make(chan error, 1)
	for failures := 0; ; failures++ {
		began := time.Now()
		watching, cancel := context.WithCancel(ctx)
		running.Go(func() {
			defer cancel()
			ended <- s.bucket.Watch(watching, key, func() {
				select {
				case hints <- struct{}{}:
				default: // the next reading finds this change
				}
			})
		})
		err := w.read(watching, hints)
		cancel()
		if watchErr := <-ended; err == nil {
			err = watchErr
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = errWatchReturned
		}
		w.disconnected(err)
		if time.Since(began) >= goodWatch {
			failures = 0
		}
		if err := pause(ctx, failures, firstPause); err != nil {
			return err
		}
	}
}

var errWatchReturned = errors.New("the Watch of the kvstore.Bucket returned nil before its context ended")

const (
	firstPause = 10 * time.Millisecond // the longest pause after the first failure of a watch
	goodWatch  = time.Second           // a watch lasting this long counts as successful
)

// A watcher reads a client's inbox.
type watcher struct {
	bucket    Bucket
	key       string
	on        func(driver.Event)
	seen      uint64 // the last read event's number
	begun     bool   // seen is set
	connected bool
	stopped   bool // the last event was EventDisconnected
}

// read reads the inbox at each hint, until the watch ends or a Get fails. It returns the Get's
// error, unless the Get failed because the watch ended.
func (w *watcher) read(ctx context.Context, hints <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hints:
		}
		v, err := w.bucket.Get(ctx, w.key)
		switch {
		case err == nil:
			w.deliver(decodeInbox(v))
		case ctx.Err() == nil:
			return err
		}
	}
}

// deliver passes on the new events. The first events are from an earlier watch. An inbox that ends
// before the last event is new: a sweep deleted the old inbox.
func (w *watcher) deliver(m inbox) {
	if m.last() < w.seen {
		w.seen = 0
	}
	missed := w.begun && m.Dropped > w.seen
	if !w.begun {
		w.seen, w.begun = m.last(), true
	}
	if !w.connected || missed {
		w.connected, w.stopped = true, false
		w.on(driver.Event{Kind: driver.EventConnected})
	}
	for _, e := range m.Entries {
		if e.Number > w.seen {
			w.on(driver.Event{Kind: e.Kind, Token: e.Token, Fence: e.Fence, Ticket: e.Ticket, Reason: e.Reason})
		}
	}
	w.seen = m.last()
}

func (w *watcher) disconnected(err error) {
	w.connected = false
	if !w.stopped {
		w.stopped = true
		w.on(driver.Event{Kind: driver.EventDisconnected, Err: err})
	}
}
