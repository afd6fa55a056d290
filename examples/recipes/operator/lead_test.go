package operator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// stopping is how long a manager's controllers finish their work.
const stopping = time.Minute

// A cluster counts the running managers.
type cluster struct {
	t       *testing.T
	store   *memstore.Store
	created int
	running int
}

// A manager follows manager.Manager's rules: it starts once, and returns nil when its context ended
// and its controllers have stopped.
type manager struct {
	cluster *cluster
	started bool
}

func (m *manager) Start(ctx context.Context) error {
	if m.started {
		return errors.New("manager already started")
	}
	m.started = true
	m.cluster.running++
	if m.cluster.running != 1 {
		m.cluster.t.Errorf("%d managers run", m.cluster.running)
	}
	<-ctx.Done()
	time.Sleep(stopping)
	m.cluster.running--
	return nil
}

func (c *cluster) create() (Starter, error) {
	c.created++
	return &manager{cluster: c}, nil
}

// begin starts a replica. The returned function stops it.
func (c *cluster) begin() (stop func()) {
	locks := dibs.New(c.store)
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() {
		defer locks.Close()
		ended <- Lead(ctx, locks, c.create)
	}()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("Lead returned %v, want none: its end was asked for", err)
		}
	}
}

// A stopped replica should hand over when its controllers have stopped.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, store: memstore.New()}
		stopFirst := c.begin()
		synctest.Wait()
		stopSecond := c.begin()
		time.Sleep(time.Hour)
		synctest.Wait()
		if c.created != 1 {
			t.Fatalf("%d managers while the first leads", c.created)
		}
		begin := time.Now()
		stopFirst()
		synctest.Wait()
		if c.running != 1 || time.Since(begin) != stopping {
			t.Errorf("%d managers run after %v, want the second", c.running, time.Since(begin))
		}
		stopSecond()
		if c.running != 0 || c.created != 2 {
			t.Errorf("%d of %d managers run at the end", c.running, c.created)
		}
	})
}

// A replica that lost its term starts a new manager in its next term.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, store: memstore.New()}
		stop := c.begin()
		synctest.Wait()
		c.store.LoseData()
		time.Sleep(time.Hour)
		synctest.Wait()
		if c.created != 2 || c.running != 1 {
			t.Errorf("%d of %d managers run, want the second", c.running, c.created)
		}
		stop()
	})
}

// A manager that cannot be created ends Lead.
func TestNoManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New())
		defer locks.Close()
		bad := errors.New("no configuration")
		err := Lead(t.Context(), locks, func() (Starter, error) { return nil, bad })
		if !errors.Is(err, bad) {
			t.Errorf("got %v", err)
		}
	})
}
