package sqlstore

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/guard"
)

// held contains a context's leases.
type held []guard.Lease

func (h held) HeldLeases() []guard.Lease { return h }

// A check cancelled by the loss of the lease should report the loss.
func TestGuardOfALeaseThatIsLostMeanwhile(t *testing.T) {
	ctx, lose := context.WithCancelCause(context.WithValue(t.Context(), guard.Key{}, held{{Names: []string{"n"}, Fences: []uint64{1}, Token: "t"}}))
	defer lose(nil)
	cancelled := errors.New("cancelled")
	for _, lost := range []bool{false, true} {
		if lost {
			lose(driver.ErrLost)
		}
		err := Guard(ctx, nil, func(Guarded) (bool, error) { return false, cancelled })
		if !errors.Is(err, cancelled) || errors.Is(err, driver.ErrLost) != lost {
			t.Errorf("lost %v: error %v, want the error of the check, and ErrLost if it is lost", lost, err)
		}
	}
}
