package turns_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver/turns"
)

// Calls for a token follow each other. Calls for others do not wait.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns.Turns
		begin := func(name, token string) func() {
			end, err := ts.Begin(context.Background(), name, token)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		first := begin("a", "token")
		begin("b", "token")()
		begin("a", "other")()
		var inside, calls int
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				defer begin("a", "token")()
				if inside++; inside > 1 {
					t.Error("two calls at once")
				}
				time.Sleep(time.Second)
				inside--
				calls++
			})
		}
		synctest.Wait()
		if inside != 0 {
			t.Error("a call did not wait")
		}
		first()
		group.Wait()
		if calls != 3 {
			t.Errorf("%d calls, want 3", calls)
		}
	})
}

// A wait ends with its context, and the turn goes to the next.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns.Turns
		end, err := ts.Begin(t.Context(), "a", "token")
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error)
		go func() { _, err := ts.Begin(ctx, "a", "token"); failed <- err }()
		synctest.Wait()
		cancel(cause)
		if err := <-failed; !errors.Is(err, cause) {
			t.Errorf("error %v, want the cause", err)
		}
		end()
		again, err := ts.Begin(t.Context(), "a", "token")
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}
