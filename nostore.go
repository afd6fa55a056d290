package dibs

import "context"

import "github.com/dibslock/dibs/driver"

// noStore replaces a nil Store: a panic in a background goroutine would explain less.
type noStore struct{}

var errNoStore = invalid("nil Store given to dibs.New")

func (noStore) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, errNoStore
}
func (noStore) Groups(names []string) [][]string                    { return [][]string{names} }
func (noStore) Cancel(context.Context, driver.AcquireRequest) error { return errNoStore }
func (noStore) Resize(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, errNoStore
}
func (noStore) Revoke(context.Context, driver.RevokeRequest) (bool, error) {
	return false, errNoStore
}
func (noStore) Release(context.Context, driver.ReleaseRequest) (bool, error) {
	return false, errNoStore
}
func (noStore) NotifyWanted(context.Context, driver.WantedRequest) (bool, error) {
	return false, errNoStore
}
func (noStore) ReserveFences(context.Context, driver.FenceRequest) (driver.FenceReply, error) {
	return driver.FenceReply{}, errNoStore
}
func (noStore) Watch(context.Context, string, func(driver.Event)) error { return errNoStore }
func (noStore) Inspect(context.Context, string) (State, error)          { return State{}, errNoStore }
func (noStore) InspectAll(context.Context, []string) ([]State, error) {
	return nil, errNoStore
}
func (noStore) List(context.Context, string) ([]string, error) { return nil, errNoStore }
func (noStore) Extend(_ context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	for i := range errs {
		errs[i] = errNoStore
	}
	return errs
}
