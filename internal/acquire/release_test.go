package acquire

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A cancel should be repeated for as long as the store may keep the request's remains. These are a
// lease, a queue entry that becomes a lease at the last moment, or a lock acquired by an
// unanswered try.
func TestCancelLastsAsLongAsTheStoreKeepsIt(t *testing.T) {
	for what, test := range map[string]struct {
		ttl, unanswered, want time.Duration
	}{
		"lease":                 {30 * time.Second, 0, 30 * time.Second},
		"queue entry":           {time.Second, 0, driver.WaiterTTL + time.Second},
		"try without an answer": {time.Second, 20 * time.Second, 20*time.Second + driver.WaiterTTL + time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, last := time.Now(), time.Duration(0)
				a := newAcquirer(&scripted{cancel: func() error {
					last = time.Since(begin)
					return &driver.UnavailableError{Op: "cancel", Refused: true}
				}})
				defer a.Work.End()
				var unanswered time.Time
				if test.unanswered > 0 {
					unanswered = begin.Add(test.unanswered)
				}
				a.Cancel(t.Context(), driver.AcquireRequest{Name: "n", Token: "mine", TTL: test.ttl, Weight: 1, Limit: 1}, false, unanswered)
				time.Sleep(time.Hour)
				synctest.Wait()
				if last < test.want || last > test.want+cancelGrace {
					t.Errorf("the last cancel was sent after %v, want %v", last, test.want)
				}
			})
		})
	}
}

// An unanswered cancel may end a later lease with the same token. So a call with this token should
// begin only when the cancel can no longer arrive.
func TestCallAwaitsACancelWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scripted{answer: func(driver.AcquireRequest) (driver.AcquireReply, error) {
			return driver.AcquireReply{Held: true, Fence: 101}, nil
		}}
		store.cancel = func() error {
			if store.cancels == 1 {
				return &driver.UnavailableError{Op: "cancel", Cause: errors.New("connection reset")}
			}
			return nil
		}
		a := newAcquirer(store)
		defer a.Work.End()
		request := driver.AcquireRequest{Name: "n", Token: "mine", TTL: time.Minute, Weight: 1, Limit: 1}
		begin := time.Now()
		a.Cancel(t.Context(), request, true, time.Time{})
		var call Call
		call.Begin(a, request, Limits{Timeout: 10 * time.Second}, true)
		_, o := call.Run(t.Context(), nil)
		call.End(t.Context(), true)
		synctest.Wait()
		if took := time.Since(begin); o.Why != Granted || took < a.Timeout || store.cancels != 2 {
			t.Errorf("%+v after %v and %d cancels, want a grant after %v", o, took, store.cancels, a.Timeout)
		}
	})
}
