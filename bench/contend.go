package main

import (
	"context"
	"sync"
	"time"
)

// A contender is one waiter: it wants the one name, again and again.
type contender struct {
	id     int
	ctx    context.Context
	cancel context.CancelFunc
	spans  []acquisition
	failed error
}

// contendJob is this worker's share of the waiters.
func contendJob(o order, p peer, t link) error {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	var crowd []*contender
	var running sync.WaitGroup
	for id := o.Index; id < o.Count; id += o.Workers {
		c := &contender{id: id}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		crowd = append(crowd, c)
		running.Go(func() { c.run(p, o, w) })
	}
	sleepUntil(w.To)
	for _, c := range crowd {
		c.cancel()
	}
	running.Wait()
	var h history
	for _, c := range crowd {
		h.Acquisitions = append(h.Acquisitions, c.spans...)
		if c.failed != nil {
			h.Failure = c.failed.Error()
		}
	}
	return t.out.Encode(h)
}

// run goes on until the window is over. What fails after that is the end's doing.
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
