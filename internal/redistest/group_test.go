package redistest

import (
	"context"
	"errors"
	"testing"
)

func TestAwaitTellsWhatWasMissing(t *testing.T) {
	missing := errors.New("missing")
	asked := false
	err := awaitFor(blink, "all is well", func(ctx context.Context) error {
		if asked {
			<-ctx.Done()
			return ctx.Err()
		}
		asked = true
		return missing
	})
	if !errors.Is(err, missing) {
		t.Errorf("have %v, want %v", err, missing)
	}
}

func TestAwaitTriesAgain(t *testing.T) {
	tries := 0
	err := await("it is tried three times", func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("too few")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("have %v after %d tries", err, tries)
	}
}
