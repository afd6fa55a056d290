package redisstore

import (
	"context"
	"errors"
	"time"
)

// A subscription can stay behind: after a failover its connection may go on leading to
// who was master before, which may not know it yet, while requests go to the new one, or
// will with the next connection that is made. Whoever lost his lock by that failover is
// told when the subscription is made again, so that must be soon.

var (
	errAstray = errors.New("the subscription is not on the server that is asked")
	errPaused = errors.New("the server did not answer for a while: it may be no master any more")
)

// A lookout asks the server how many listen on a client's channel: once a second, and ten
// times in the second after the subscription was made again, while the library may be
// about to learn of another server.
type masterWatch struct {
	store   *Store
	channel string
	made    int       // subscriptions, so far
	zeros   int       // subscriptions in a row of which the server counted none
	paused  time.Time // when the subscription was last given up after a pause
	again   time.Time // when it is to be made once more
}

// A sighting is what a server says, and when: how many listen.
type masterState struct {
	listen int64
	err    error
	took   time.Duration
}

// late is when an answer makes it seem that the server was frozen.
const late = 500 * time.Millisecond

// watch returns when a new subscription has to be made, and why: the one that there is
// may be on the wrong server. It returns nil if it cannot know.
func (l *masterWatch) watch(ctx context.Context) error {
	const every, often, most, first = time.Second, 100 * time.Millisecond, 3, 10
	seen := make(chan masterState, most)
	under, paused := 0, false
	l.made++
	for n := 0; ; n++ {
		wait := every
		if paused || l.made > 1 && n < first {
			wait = often
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		if under < most {
			under++
			go func() {
				start := time.Now()
				c := l.inspect(ctx)
				c.took = time.Since(start)
				seen <- c
			}()
		}
		select {
		case c := <-seen:
			under--
			switch why := l.compare(c, paused || c.took >= late); {
			case forbidden(c.err):
				return nil
			case why != nil:
				return why
			case c.err != nil:
				paused = true
			default:
				paused = false
			}
		case <-time.After(late):
			paused = true
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *masterWatch) inspect(ctx context.Context) masterState {
	var reply [1]Reply
	l.store.conn.Do(context.WithoutCancel(ctx), []Cmd{{"PUBSUB", "NUMSUB", l.channel}}, reply[:])
	if reply[0].Err != nil {
		return masterState{err: reply[0].Err}
	}
	pair, _ := reply[0].Value.([]any)
	in := reader{fields: pair}
	in.string()
	n := in.int()
	if in.bad || len(in.fields) > 0 {
		return masterState{err: unexpected(reply[0].Value)}
	}
	return masterState{listen: n}
}

// judge decides whether to listen anew. A server that has not answered for a while may
// have been replaced meanwhile: who connects now is told who is master. That is done
// once more a little later, when all sentinels know. A server that counts nobody, again
// and again, cannot count.
func (l *masterWatch) compare(c masterState, paused bool) error {
	const rest, settled, enough = 10 * time.Second, 2 * time.Second, 3
	now := time.Now()
	switch {
	case c.err != nil:
		return nil
	case c.listen == 0:
		if l.zeros++; l.zeros <= enough {
			return errAstray
		}
	default:
		l.zeros = 0
	}
	switch {
	case paused && now.Sub(l.paused) >= rest:
		l.paused, l.again = now, now.Add(settled)
		return errPaused
	case !l.again.IsZero() && !now.Before(l.again):
		l.again = time.Time{}
		return errPaused
	}
	return nil
}
