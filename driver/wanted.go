package driver

import "context"

// MaxWanted is how many of a name's holders a store must at least notify with EventWanted.
const MaxWanted = 64

// A WantedNotifier is a Store that notifies holders when requests wait. With another Store that is
// an Inspector, the Client inspects the name at each renewal instead. If the Store is neither,
// holders are never notified. NotifyWanted is no part of an acquire: a holder can call Lease.Wanted
// at any time, and other holders cost nothing.
type WantedNotifier interface {
	// NotifyWanted asks the store for an EventWanted. If a request joins the name's empty wait queue
	// while r.Token holds the name, the store sends the event to r.Client. If a request already waits,
	// NotifyWanted returns true, and the store need not send the event. If the token does not hold the
	// name, NotifyWanted returns false.
	//
	// The store sends at most one event for each call. A lost event only adds latency, because the
	// Client calls NotifyWanted again. If a name has more than MaxWanted shared holders, the store
	// need not notify all of them.
	NotifyWanted(ctx context.Context, r WantedRequest) (wanted bool, err error)
}

// A WantedRequest asks the store to notify a lease's holder when a request waits.
type WantedRequest struct {
	Name   string
	Token  string // the lease's token
	Client string // the client whose Watch receives the event
}

// CheckWanted returns ErrInvalid if no store can accept the request to NotifyWanted.
func CheckWanted(r WantedRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	return checkOwner(r.Name, r.Token, r.Client)
}
