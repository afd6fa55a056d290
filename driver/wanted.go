package driver

import "context"

// MaxWanted is how many of a name's holders a store must at least notify with EventWanted.
const MaxWanted = 64

// A WantedNotifier is a Store that notifies holders when requests wait. Without it, the Client
// inspects the name once at each renewal, if the store is an Inspector. Otherwise a holder is never
// notified.
type WantedNotifier interface {
	// NotifyWanted asks for an EventWanted: the store sends it to r.Client when a request joins the
	// name's empty wait queue while r.Token holds the name. If a request already waits,
	// NotifyWanted returns true, and no event need follow. It returns false if the token does not
	// hold the name.
	//
	// The store sends at most one event for each call. A lost event only adds latency, because a
	// Client repeats the call. If there are more than MaxWanted shared holders, the store need not
	// notify them all.
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
