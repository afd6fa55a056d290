package redistest

import (
	"context"
	"errors"
	"testing"
)

func TestWaitUntilReturnsTheLastCondition(t *testing.T) {
	missing := errors.New("missing")
	called := false
	err := waitUntilFor(shortWait, "all is well", func(ctx context.Context) error {
		if called {
			<-ctx.Done()
			return ctx.Err()
		}
		called = true
		return missing
	})
	if !errors.Is(err, missing) {
		t.Errorf("got %v, want %v", err, missing)
	}
}

func TestWaitUntilRetries(t *testing.T) {
	tries := 0
	err := waitUntil("three tries are made", func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("too few")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("got %v after %d tries", err, tries)
	}
}
