package dibs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// After a late grant, a client's calls are late for a minute, except calls for several names. The
// same applies after its notifications stopped. A call stays as it was at its beginning.
func TestLateForAMinute(t *testing.T) {
	const age = 500 * time.Millisecond
	for name, c := range map[string]struct {
		age  time.Duration // the grant's
		lost bool          // the notifications stop, and flow again
		late bool
	}{
		"in time":            {age: age - 1},
		"age unknown":        {},
		"grant is late":      {age: age, late: true},
		"notifications stop": {lost: true, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				var late []bool // for the requests
				f.set(func(f *faulty) {
					f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
						f.set(func(*faulty) { late = append(late, r.Late) })
						return f.Store.Acquire(ctx, r)
					}
					f.event = func(e driver.Event, on func(driver.Event)) {
						if e.Kind == driver.EventGranted {
							e.Age = c.age
						}
						if e.Kind == driver.EventGranted && c.lost {
							on(driver.Event{Kind: driver.EventDisconnected})
							on(driver.Event{Kind: driver.EventConnected})
							return
						}
						on(e)
					}
				})
				lastIsLate := func() bool { return late[len(late)-1] }
				holder, client := open(t, good), open(t, f)
				held := lock(t, holder, "n")
				entered := make(chan *dibs.Lease, 1)
				go func() { entered <- lock(t, client, "n") }()
				synctest.Wait()
				wantErr(t, held.Unlock())
				wantErr(t, (<-entered).Unlock())
				if lastIsLate() {
					t.Error("a call became late")
				}
				wantErr(t, lock(t, client, "n").Unlock())
				if lastIsLate() != c.late {
					t.Errorf("late: %v, want %v", lastIsLate(), c.late)
				}
				all, err := client.All([]string{"a", "b"}).Lock(t.Context())
				wantErr(t, err)
				wantErr(t, all.Unlock())
				if lastIsLate() {
					t.Error("a multi-lock is late")
				}
				time.Sleep(time.Minute)
				wantErr(t, lock(t, client, "n").Unlock())
				if lastIsLate() {
					t.Error("late after a minute")
				}
			})
		})
	}
}
