package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A subscription can be on the wrong server. After a failover its connection can still lead to the
// former master, which may not have noticed it yet. Meanwhile requests go to the new master, or
// will with the next connection. A holder whose lock was lost in the failover learns of it when the
// subscription is made again, so this must happen soon.

var (
	errWrongServer  = errors.New("the subscription is on another server than the requests")
	errServerPaused = errors.New("the server did not reply for a while, and may not be the master any more")
)

// A masterWatch polls the server for the number of subscribers to a client's channel. It polls once
// a second while the client is busy, and ten times in the second after a new subscription. In that
// second the library may be about to discover another server.
type masterWatch struct {
	store         *Store
	channel       string
	busy          func() bool // reports whether the client holds or awaits anything
	subscriptions int         // made so far
	zeroCounts    int         // consecutive replies without a subscriber
	lastPause     time.Time   // when a subscription was last given up after a pause
	resubscribeAt time.Time   // when to make it once more; zero if never
}

// A masterState is a reply: the number of subscribers, and how long it took.
type masterState struct {
	subscribers int64
	err         error
	took        time.Duration
}

// pauseThreshold is the reply time from which a server counts as having been frozen.
const pauseThreshold = 500 * time.Millisecond

// watch returns when the client must subscribe again, with the reason: the present subscription may
// be on the wrong server. It returns nil if it cannot find out, or when ctx ends.
func (w *masterWatch) watch(ctx context.Context) error {
	const every, often, mostAsking, quickReplies = time.Second, 100 * time.Millisecond, 2, 10
	seen := make(chan masterState, mostAsking)
	asking, paused := 0, false
	w.subscriptions++
	for n := 0; ; n++ {
		wait := every
		if paused || w.subscriptions > 1 && n < quickReplies {
			wait = often
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		if !w.busy() {
			paused = false
			continue
		}
		if asking < mostAsking {
			asking++
			go func() {
				start := time.Now()
				state := w.inspect(ctx)
				state.took = time.Since(start)
				seen <- state
			}()
		}
		select {
		case state := <-seen:
			asking--
			switch reason := w.compare(state, paused || state.took >= pauseThreshold); {
			case forbidden(state.err):
				return nil
			case reason != nil:
				return reason
			case state.err != nil:
				paused = true
			default:
				paused = false
			}
		case <-time.After(pauseThreshold):
			paused = true
		case <-ctx.Done():
			return nil
		}
	}
}

// inspect uses the requests' connection, in a batch with them. Otherwise a thousand clients would
// each open another connection when they come back after an outage.
func (w *masterWatch) inspect(ctx context.Context) masterState {
	const patience = time.Second
	r := w.store.requests.Get()
	r.Request = wire.Request{Cmd: redisconn.Command("PUBSUB", "NUMSUB", w.channel)}
	r.Extends = true // a batch has another request's trace
	reply, _ := w.store.do(context.WithoutCancel(ctx), r, time.Now().Add(patience))
	if reply.Err != nil {
		return masterState{err: reply.Err}
	}
	n, err := wire.ParseNumSub(reply.Value)
	return masterState{subscribers: n, err: err}
}

// compare decides whether to subscribe again. A server that did not reply for a while may have been
// replaced; a new connection leads to the current master. The client subscribes once more a little
// later, when all Sentinels agree. A server that repeatedly counts no subscriber cannot count them.
func (w *masterWatch) compare(state masterState, paused bool) error {
	const minInterval, delay, maxZeroCounts = 10 * time.Second, 2 * time.Second, 3
	now := time.Now()
	switch {
	case state.err != nil:
		return nil
	case state.subscribers == 0:
		if w.zeroCounts++; w.zeroCounts <= maxZeroCounts {
			return errWrongServer
		}
	default:
		w.zeroCounts = 0
	}
	switch {
	case paused && now.Sub(w.lastPause) >= minInterval:
		w.lastPause, w.resubscribeAt = now, now.Add(delay)
		return errServerPaused
	case !w.resubscribeAt.IsZero() && !now.Before(w.resubscribeAt):
		w.resubscribeAt = time.Time{}
		return errServerPaused
	}
	return nil
}
