package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A stopped leader finishes its work. Only then does the next lead, at once.
func TestStopHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, leading, terms := memstore.New(), 0, 0
		begin := func() (stop context.CancelFunc, ended chan error) {
			locks := dibs.New(store, dibs.TTL(10*time.Second), dibs.Observe(hooks()))
			ctx, stop := context.WithCancel(t.Context())
			ended = make(chan error, 1)
			go func() {
				defer locks.Close()
				ended <- lead(ctx, locks, func(ctx context.Context) error {
					leading++
					terms++
					<-ctx.Done()
					time.Sleep(time.Minute) // the rest of the work
					if leading != 1 {
						t.Errorf("%d leaders", leading)
					}
					leading--
					return ctx.Err()
				})
			}()
			return stop, ended
		}
		stopFirst, first := begin()
		synctest.Wait()
		stopSecond, second := begin()
		time.Sleep(time.Hour)
		stopFirst()
		if err := <-first; err != nil {
			t.Errorf("first: %v", err)
		}
		synctest.Wait()
		if leading != 1 || terms != 2 {
			t.Errorf("%d leaders after %d terms, want the second to lead", leading, terms)
		}
		stopSecond()
		if err := <-second; err != nil {
			t.Errorf("second: %v", err)
		}
	})
}
