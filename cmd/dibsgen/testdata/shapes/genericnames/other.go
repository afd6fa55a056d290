package genericnames

import (
	"context"
	"time"
)

// Clock is in a file that imports what the others do not.
type Clock interface {
	Store[time.Duration]
	//dibs:lock "tick"
	Tick(ctx context.Context) error
}
