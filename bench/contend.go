package main

import (
	"context"
	"sync"
	"time"
)

// A contender is a waiter, which acquires the same name repeatedly.
type contender struct {
	id     int
	ctx    context.Context
	cancel context.CancelFunc
	spans  []acquisition
	failed error
}

// contendJob runs this worker's share of the waiters.
func contendJob(o order, p peer, t link) error {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	var contenders []*contender
	var running sync.WaitGroup
	for id := o.Index; id < o.Count; id += o.Workers {
		c := &contender{id: id}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		contenders = append(contenders, c)
		running.Go(func() { c.run(p, o, w) })
	}
	sleepUntil(w.To)
	for _, c := range contenders {
		c.cancel()
	}
	running.Wait()
	var h history
	for _, c := range contenders {
		h.Acquisitions = append(h.Acquisitions, c.spans...)
		if c.failed != nil {
			h.Failure = c.failed.Error()
		}
	}
	return t.out.Encode(h)
}

// run acquires and releases the name until the window is over. It ignores failures after
// that: they come from the cancelled context.
func (c *contender) run(p peer, o order, w window) {
	for now() < w.To {
		s := acquisition{Waiter: c.id, Requested: now()}
		unlock, err := p.Lock(c.ctx, o.Name)
		if err == nil {
			s.Begin = now()
			time.Sleep(o.Section)
			s.Done = now()
			err = unlock()
		}
		c.spans = append(c.spans, s)
		if err != nil && now() < w.To {
			c.failed = err
			time.Sleep(time.Millisecond)
		}
	}
}
