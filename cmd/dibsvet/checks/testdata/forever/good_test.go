package forever

import (
	"context"
	"testing"
)

// go test limits the time.
func TestDo(t *testing.T) {
	if err := locks.Mutex("a").Do(context.Background(), nothing); err != nil {
		t.Error(err)
	}
}
