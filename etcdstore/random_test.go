package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
)

// Several processes lock a few names, while replies to their requests are lost, and requests are
// late. No two tokens hold a name at once, fences grow, and nothing is left.
func TestLostAndLateRequests(t *testing.T) {
	t.Parallel()
	duration := 5 * time.Second
	if isLong() {
		duration = 2 * time.Minute
	}
	d := &disorder{t: t, prefix: newPrefix(), end: time.Now().Add(duration), holds: make(map[string]map[string]hold), fences: make(map[string]fenceRange)}
	const processes, workers = 3, 4
	var late, work sync.WaitGroup
	for range processes {
		s, kv := newLossyStore(t, etcdstore.Prefix(d.prefix))
		kv.loseSome(0.1, &late)
		for i := range workers {
			work.Go(func() { d.work(s, i) })
		}
	}
	work.Wait()
	late.Wait()
	if d.count == 0 {
		t.Error("no name was ever held")
	}
	t.Logf("%d holds", d.count)
	s := etcdstore.New(newClient(t, sharedServer(t)), etcdstore.Prefix(d.prefix))
	for _, name := range disorderNames {
		wantEmpty(t, s, name)
	}
}

var disorderNames = []string{"a", "b", "c"}

// A disorder is the state of TestLostAndLateRequests.
type disorder struct {
	t      *testing.T
	prefix string
	end    time.Time

	mu     sync.Mutex
	tokens int
	count  int
	holds  map[string]map[string]hold // by name and token
	fences map[string]fenceRange
}

// A hold is a lease as its holder knows it.
type hold struct {
	weight, limit int
	until         time.Time
}

func (h hold) exclusive() bool { return h.weight == h.limit }

// fits reports whether two leases can be held together.
func (h hold) fits(o hold) bool {
	return !h.exclusive() && !o.exclusive() && h.weight+o.weight <= min(h.limit, o.limit)
}

// A fenceRange is the largest fences of a name.
type fenceRange struct{ exclusive, all uint64 }

// work acquires and releases leases.
func (d *disorder) work(s *etcdstore.Store, worker int) {
	own := ""
	if worker == 0 { // uses its token again and again
		own = fmt.Sprintf("own-%p", s)
	}
	for time.Now().Before(d.end) {
		d.lock(s, own)
	}
}

func (d *disorder) request(own string) driver.AcquireRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tokens++
	token := own
	if token == "" {
		token = fmt.Sprintf("host:1:0123456789abcdef:%d", d.tokens)
	}
	r := driver.AcquireRequest{
		Name: disorderNames[rand.IntN(len(disorderNames))], Token: token, Client: "host:1:0123456789abcdef",
		TTL: 2 * time.Second, Weight: 1, Limit: 1, Queue: rand.IntN(3) > 0,
	}
	if rand.IntN(50) == 0 {
		r.TTL = 2 * time.Minute
	}
	switch mode := rand.IntN(4); {
	case mode == 0 && own == "":
		r.Name, r.With = "a", []string{"b", "c"}
	case mode == 1:
		r.Weight, r.Limit = 1+rand.IntN(2), 3
	}
	return r
}

// lock acquires a lease, holds it for a moment, and releases it.
func (d *disorder) lock(s *etcdstore.Store, own string) {
	r := d.request(own)
	defer d.cancel(s, r)
	for try := range 200 {
		r.Until = time.Now().Add(2 * time.Second)
		sent := time.Now()
		reply, err := s.Acquire(context.Background(), r)
		if err == nil && reply.Held {
			d.hold(s, r, sent, reply.Fence)
			return
		}
		if err == nil && !r.Queue || try > 100 && rand.IntN(10) == 0 {
			return
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

// hold records a lease, renews it, and releases it.
func (d *disorder) hold(s *etcdstore.Store, r driver.AcquireRequest, sent time.Time, fence uint64) {
	d.begin(r, sent, fence)
	for range rand.IntN(4) {
		time.Sleep(rand.N(20 * time.Millisecond))
		sent := time.Now()
		var requests []driver.ExtendRequest
		for _, name := range r.Names() {
			requests = append(requests, driver.ExtendRequest{Name: name, Token: r.Token, Client: r.Client, TTL: r.TTL, Weight: 1, Limit: 1})
		}
		for _, err := range s.Extend(context.Background(), requests) {
			if errors.Is(err, driver.ErrLost) && time.Since(sent) < time.Second {
				d.t.Errorf("%q lost %q", r.Token, r.Name)
			}
		}
		d.record(r, sent)
		if r.Limit == 3 {
			fence = d.resize(s, &r, fence)
		}
	}
	d.finish(r)
	for _, name := range r.Names() {
		d.release(s, driver.ReleaseRequest{Name: name, Token: r.Token, Fence: fence})
	}
}

// resize changes the weight of a semaphore's permits.
func (d *disorder) resize(s *etcdstore.Store, r *driver.AcquireRequest, fence uint64) uint64 {
	other := *r
	other.Weight = 3 - r.Weight
	other.Until = time.Now().Add(2 * time.Second)
	if other.Weight < r.Weight { // it can happen at any time from now
		d.record(other, time.Now())
	}
	reply, err := s.Resize(context.Background(), other)
	switch {
	case err != nil:
		other.Weight = 1 // unknown
	case !reply.Held:
		other.Weight = r.Weight
	}
	*r = other
	d.record(*r, time.Now().Add(-time.Second))
	return max(fence, reply.Fence)
}

func (d *disorder) begin(r driver.AcquireRequest, sent time.Time, fence uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	own := hold{r.Weight, r.Limit, sent.Add(r.TTL)}
	for _, name := range r.Names() {
		for token, h := range d.holds[name] {
			if token != r.Token && time.Now().Before(h.until) && !own.fits(h) {
				d.t.Errorf("%q: granted to %q while %q holds it: %+v", name, r.Token, token, h)
			}
		}
		f := d.fences[name]
		if fence <= f.exclusive || own.exclusive() && fence <= f.all {
			d.t.Errorf("%q: fence %d after %+v", name, fence, f)
		}
		if own.exclusive() {
			f.exclusive = fence
		}
		f.all = max(f.all, fence)
		d.fences[name] = f
		if d.holds[name] == nil {
			d.holds[name] = make(map[string]hold)
		}
		d.holds[name][r.Token] = own
	}
}

// record records the state of a lease.
func (d *disorder) record(r driver.AcquireRequest, sent time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range r.Names() {
		d.holds[name][r.Token] = hold{r.Weight, r.Limit, sent.Add(r.TTL)}
	}
}

func (d *disorder) finish(r driver.AcquireRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range r.Names() {
		delete(d.holds[name], r.Token)
	}
}

func (d *disorder) release(s *etcdstore.Store, r driver.ReleaseRequest) {
	for {
		if _, err := s.Release(context.Background(), r); err == nil {
			return
		}
	}
}

func (d *disorder) cancel(s *etcdstore.Store, r driver.AcquireRequest) {
	r.Until = time.Time{}
	for {
		if err := s.Cancel(context.Background(), r); err == nil {
			return
		}
	}
}
