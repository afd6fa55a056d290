package zkstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

const (
	drillTTL    = 2 * time.Second
	session     = 4 * time.Second  // the longest session of a lock with this TTL
	longSession = 10 * time.Second // the longest session of a client's waiters
)

// A drill lets clients lock a single name while something fails, and records what they see.
type drill struct {
	t      *testing.T
	admin  *zk.Conn // nothing fails for it
	prefix string
	rec    *history.Recorder
	ctx    context.Context // until stop
	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu      sync.Mutex
	clients []*dibs.Client
	entries []history.Moment // when the lock was acquired
}

const drillName = "n"

func newDrill(t *testing.T, admin *zk.Conn) *drill {
	d := &drill{t: t, admin: admin, prefix: newPrefix(), rec: history.NewRecorder()}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	t.Cleanup(d.cancel)
	return d
}

// open returns a client of dibs on some servers.
func (d *drill) open(servers []string, options ...zkstore.Option) *dibs.Client {
	s := open(d.t, servers, append([]zkstore.Option{zkstore.Prefix(d.prefix)}, options...)...)
	c := dibs.New(s, dibs.TTL(drillTTL))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients = append(d.clients, c)
	return c
}

// enter starts a goroutine that locks the name again and again, each time for a short work.
func (d *drill) enter(c *dibs.Client) {
	const work, pause = 20 * time.Millisecond, 5 * time.Millisecond
	d.loops.Go(func() {
		for d.ctx.Err() == nil {
			_ = d.visit(c, work, nil) // the history contains it
			d.sleep(pause)
		}
	})
}

// visit locks the name, checks its lease until the end of the work or of the lease, and unlocks.
// held is called when it is locked, unless nil.
func (d *drill) visit(c *dibs.Client, work time.Duration, held func()) error {
	names := []string{drillName}
	acquire := d.rec.Call(history.Op{Verb: history.Acquire, Names: names, Weight: 1, Limit: 1})
	lease, err := c.Mutex(drillName).Lock(d.ctx)
	if err != nil {
		d.rec.Return(acquire, err)
		return err
	}
	acquire.Token, acquire.Fences = string(lease.Token()), []uint64{lease.Fence()}
	d.rec.Return(acquire, nil)
	d.mu.Lock()
	d.entries = append(d.entries, acquire.Return)
	d.mu.Unlock()
	if held != nil {
		held()
	}
	of := history.Op{Of: acquire.ID, Names: names, Token: acquire.Token}
	const often = 2 * time.Millisecond
	for end := time.Now().Add(work); ; d.sleep(often) {
		of.Verb = history.Probe
		probe := d.rec.Call(of)
		err := lease.Context().Err()
		d.rec.Return(probe, err)
		if err != nil || d.ctx.Err() != nil || !time.Now().Before(end) {
			break
		}
	}
	of.Verb = history.Release
	release := d.rec.Call(of)
	err = lease.Unlock()
	d.rec.Return(release, err)
	return err
}

// sleep sleeps for a time, or until stop.
func (d *drill) sleep(pause time.Duration) {
	select {
	case <-d.ctx.Done():
	case <-time.After(pause):
	}
}

// hold lets a client lock the name for a longer time, and returns when it is locked. The channel is
// closed when it is no longer locked.
func (d *drill) hold(c *dibs.Client, work time.Duration) (ended <-chan struct{}) {
	d.t.Helper()
	locked, over := make(chan struct{}), make(chan struct{})
	d.loops.Go(func() {
		defer close(over)
		for d.ctx.Err() == nil {
			begun := false
			_ = d.visit(c, work, func() { begun = true; close(locked) })
			if begun {
				return
			}
			d.sleep(20 * time.Millisecond)
		}
	})
	select {
	case <-locked:
	case <-time.After(longestIdle):
		d.t.Fatalf("%s was not locked within %v", drillName, longestIdle)
	}
	return over
}

// wantEntry waits until the lock is acquired after a moment, and returns the time in between.
func (d *drill) wantEntry(since history.Moment, limit time.Duration) (after time.Duration) {
	d.t.Helper()
	eventually(d.t, limit, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, entry := range d.entries {
			if since.Before(entry) {
				after = entry.At - since.At
				return nil
			}
		}
		return errors.New("nobody acquired the lock")
	})
	return after
}

// stop ends the drill and checks what the clients saw. The lease of each holder was lost for it
// before the next holder had one, and fences grew. Nothing should be left when the sessions end.
func (d *drill) stop() {
	d.t.Helper()
	d.cancel()
	d.loops.Wait()
	for _, c := range d.clients {
		if err := c.Close(); err != nil && !errors.Is(err, dibs.ErrUnavailable) {
			d.t.Error(err)
		}
	}
	const shown = 5
	violations := history.Check(d.rec.History())
	for _, v := range violations[:min(shown, len(violations))] {
		d.t.Errorf("of %d: %v", len(violations), v)
	}
	lost := 0
	for _, op := range d.rec.History() {
		if op.Verb == history.Release && errors.Is(op.Err, dibs.ErrLost) {
			lost++
		}
	}
	d.t.Logf("FIGURE %d locks, %d lost", len(d.entries), lost)
	wantNothing(d.t, d.admin, d.prefix, longestIdle)
}
