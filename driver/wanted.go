package driver

import "context"

// MaxWanted is to how many holders of one name a store sends EventWanted at least.
const MaxWanted = 64

// A WantedNotifier is a Store that notifies a holder of waiters. Without it, the state of the name is
// read instead, once at each renewal, if the store is an Inspector. Otherwise a holder never learns of
// waiters.
type WantedNotifier interface {
	// NotifyWanted asks for an EventWanted: the store sends it to r.Client when a request
	// joins the empty wait queue of the name while r.Token holds it. If a request waits
	// already, NotifyWanted returns true, and no event need follow. It returns false if the
	// token does not hold the name. The store sends at most one event for each call. A lost
	// one costs latency only, because a Client repeats the call. Of many shared holders,
	// MaxWanted are notified at least.
	NotifyWanted(ctx context.Context, r WantedRequest) (wanted bool, err error)
}

// A WantedRequest asks the store to notify the holder of a lease of waiters.
type WantedRequest struct {
	Name   string
	Token  string // of the lease
	Client string // whose Watch receives the event
}

// CheckWanted returns ErrInvalid for a request of NotifyWanted that no store accepts.
func CheckWanted(r WantedRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	return checkOwner(r.Name, r.Token, r.Client)
}
