package zkstore

import (
	"context"
	"errors"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
	"github.com/go-zookeeper/zk"
)

// An interest is an entry whose client waits for a change of the queue: for the entry's grant or, if
// wanted, for a waiter behind the holder.
type interest struct {
	in     *inbox.Inbox
	rec    record
	link   *link // the queue is read on it
	wanted bool
}

// A view is a queue as this process sees it, by a single watch. It lasts while entries have an
// interest in it. views guards it.
type view struct {
	key       viewKey
	interests map[*interest]bool
	again     chan struct{} // contains a value after a new interest came
	end       context.CancelFunc
}

// A viewKey is a name, and the link on which its queue is read: a read on another link may be older
// than an entry of this one.
type viewKey struct {
	name string
	link *link
}

// views are the views of this process. They are safe for concurrent use.
type views struct {
	s *Store

	mu  sync.Mutex
	all map[viewKey]*view
}

// add adds an interest. It returns a function that removes it.
func (vs *views) add(i *interest) (remove func()) {
	key := viewKey{i.rec.name, i.link}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.all[key]
	if v == nil {
		ctx, cancel := context.WithCancel(context.Background())
		v = &view{key: key, interests: make(map[*interest]bool), again: make(chan struct{}, 1), end: cancel}
		vs.all[key] = v
		go vs.run(ctx, v)
	}
	for other := range v.interests {
		if other.rec.token == i.rec.token && other.wanted == i.wanted {
			delete(v.interests, other) // a repeated call
		}
	}
	v.interests[i] = true
	select {
	case v.again <- struct{}{}:
	default:
	}
	return func() { vs.remove(key, i) }
}

// remove removes an interest.
func (vs *views) remove(key viewKey, i *interest) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.all[key]; v != nil {
		vs.drop(v, i)
	}
}

// removeInbox removes the interests of a client.
func (vs *views) removeInbox(in *inbox.Inbox) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, v := range vs.all {
		for i := range v.interests {
			if i.in == in {
				vs.drop(v, i)
			}
		}
	}
}

// drop removes an interest, and ends a view without any. The caller holds the lock.
func (vs *views) drop(v *view, i *interest) {
	delete(v.interests, i)
	if len(v.interests) == 0 && vs.all[v.key] == v {
		delete(vs.all, v.key)
		v.end()
	}
}

// run watches a queue until its view ends.
func (vs *views) run(ctx context.Context, v *view) {
	pause := firstPause
	reserved := 0
	for ctx.Err() == nil {
		fired, q, pzxid, err := vs.read(ctx, v)
		switch {
		case v.key.link.hasEnded():
			vs.retryAll(v)
			return
		case err != nil:
			sleep(ctx, pause)
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		before := reserved
		reserved = q.reserved()
		vs.check(v, q, pzxid, reserved > before)
		select {
		case <-fired:
		case <-v.again:
		case <-ctx.Done():
		}
	}
}

// reserved returns how many entries are reservations.
func (q queue) reserved() (n int) {
	for _, e := range q {
		if e.reserved {
			n++
		}
	}
	return n
}

func (vs *views) read(ctx context.Context, v *view) (<-chan struct{}, queue, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	names, pzxid, fired, err := v.key.link.children(ctx, vs.s.keys.queue(v.key.name), true)
	if errors.Is(err, zk.ErrNoNode) { // every entry ended
		fired, _, err = v.key.link.gone(ctx, vs.s.keys.queue(v.key.name))
		if err != nil {
			return nil, nil, 0, err
		}
		return fired, nil, 0, nil
	}
	q, pzxid, err := vs.s.queueOf(v.key.name, names, pzxid, err)
	return fired, q, pzxid, err
}

// check notifies those concerned. If a holder reserved the name, the first waiter retries.
func (vs *views) check(v *view, q queue, pzxid int64, reserved bool) {
	vs.mu.Lock()
	var send []func()
	for i := range v.interests {
		send = append(send, vs.checkOne(v, i, q, pzxid, reserved)...)
	}
	vs.mu.Unlock()
	for _, f := range send {
		f()
	}
}

// checkOne returns the notifications for an interest, and removes it then. The caller holds the lock.
func (vs *views) checkOne(v *view, i *interest, q queue, pzxid int64, reserved bool) (send []func()) {
	at, granted := q.place(i.rec.entry), q.granted()
	retry := func() { i.in.Send(driver.Event{Kind: driver.EventRetry, Token: i.rec.token}) }
	switch {
	case i.wanted && at < 0:
	case i.wanted && len(q) > granted:
		send = append(send, func() { i.in.Send(driver.Event{Kind: driver.EventWanted, Token: i.rec.token}) })
	case i.wanted:
		return nil
	case at < 0:
		vs.s.endWait(i.rec)
		send = append(send, retry)
	case at < granted:
		fence := vs.s.fences.at(pzxid, at)
		send = append(send, func() { vs.s.granted(i.in, i.rec, fence, false) })
	case reserved && at == granted:
		return []func(){retry}
	default:
		return nil
	}
	vs.drop(v, i)
	return send
}

// retryAll lets all interested clients retry, because the session ended.
func (vs *views) retryAll(v *view) {
	vs.mu.Lock()
	interests := v.interests
	v.interests = make(map[*interest]bool)
	if vs.all[v.key] == v {
		delete(vs.all, v.key)
	}
	vs.mu.Unlock()
	v.end()
	for i := range interests {
		if !i.wanted {
			vs.s.endWait(i.rec)
			i.in.Send(driver.Event{Kind: driver.EventRetry, Token: i.rec.token})
		}
	}
}
