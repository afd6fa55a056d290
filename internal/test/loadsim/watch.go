package loadsim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A client's subscription is repeated as in the Redis stores: see redisstore, resubscribe.go and
// masterwatch.go.

const (
	openTimeout    = 5 * time.Second
	probeEvery     = time.Second
	probeOften     = 100 * time.Millisecond // in the second after the subscription was made again
	unresponsive   = 2 * time.Second        // without a reply to a probe the connection is broken
	pauseThreshold = 500 * time.Millisecond // after a slower reply, the subscription is made again,
	confirmAfter   = 2 * time.Second        // and once more
	pauseInterval  = 10 * time.Second

	soonTries  = 5
	soonPause  = 10 * time.Millisecond
	leastPause = 50 * time.Millisecond
	mostPause  = time.Second
)

var (
	errUnresponsive = errors.New("the server does not respond on the connection of the subscription")
	errPaused       = errors.New("the server did not reply for a while")
)

// A subscription belongs to a single client.
type subscription struct {
	link   *link
	client string
	busy   func() bool
	on     func(driver.Event)

	made          int
	lastPause     time.Time
	resubscribeAt time.Time
	random        *rand.Rand
}

// Watch implements driver.Store.
func (l *link) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	s := &subscription{
		link: l, client: client, busy: busy, on: on,
		random: rand.New(rand.NewPCG(l.server.plan.Seed, uint64(1000+l.client))),
	}
	tries, outage := 0, time.Time{}
	for first := true; ; first = false {
		began := time.Now()
		subscribed, err := s.run(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if subscribed || first {
			on(driver.Event{Kind: driver.EventDisconnected, Err: err})
		}
		if subscribed && time.Since(began) >= time.Second || outage.IsZero() {
			tries, outage = 0, time.Now()
		}
		tries++
		pause := soonPause
		if tries > soonTries {
			longest := min(max(time.Since(outage)/8, leastPause), mostPause)
			pause = longest/2 + rand64(s.random, longest/2)
		}
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// run subscribes, and returns when the subscription must be made again, with the reason.
func (s *subscription) run(ctx context.Context) (subscribed bool, err error) {
	server := s.link.server
	all := post(s.link, others, []int{0}, []time.Duration{server.plan.Costs.Connect}, func(int) error { return nil })
	if _, err := all[0].await(ctx, time.Now().Add(openTimeout)); err != nil {
		return false, err
	}
	s.made++
	watching, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.data.Watch(watching, s.client, nil, s.receive)
	}()
	err = s.probe(ctx, all[0].request.broken)
	end()
	<-ended
	return true, err
}

// receive delivers an event from the store. It is called while a request is executed.
func (s *subscription) receive(e driver.Event) {
	if e.Kind == driver.EventConnected {
		s.on(e)
		return
	}
	server := s.link.server
	now := server.now()
	time.AfterFunc(cutUntil(server.plan.Events, s.link.client, now)-now+server.latency(), func() { s.on(e) })
}

// probe checks the subscription until it must be made again.
func (s *subscription) probe(ctx context.Context, broken <-chan struct{}) error {
	for n := 0; ; n++ {
		wait := probeEvery
		if s.made > 1 && n < 10 {
			wait = probeOften
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-broken:
			timer.Stop()
			return errReset
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		if s.busy != nil && !s.busy() {
			continue
		}
		sent := time.Now()
		all := post(s.link, others, []int{0}, []time.Duration{s.link.server.plan.Costs.Probe}, func(int) error { return nil })
		_, err := all[0].await(ctx, sent.Add(unresponsive))
		now := time.Now()
		switch {
		case errors.Is(err, errReset) || errors.Is(err, errRefused):
			return err
		case err != nil:
			return errUnresponsive
		case now.Sub(sent) >= pauseThreshold && now.Sub(s.lastPause) >= pauseInterval:
			s.lastPause, s.resubscribeAt = now, now.Add(confirmAfter)
			return errPaused
		case !s.resubscribeAt.IsZero() && !now.Before(s.resubscribeAt):
			s.resubscribeAt = time.Time{}
			return errPaused
		}
	}
}
