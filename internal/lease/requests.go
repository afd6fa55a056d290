package lease

import (
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// AppendExtends appends the requests to extend the lease by ttl: a request for each name.
func (s *State) AppendExtends(to []driver.ExtendRequest, client string, ttl time.Duration) []driver.ExtendRequest {
	request := driver.ExtendRequest{Name: s.Name, Token: s.Token, Client: client, Fence: s.fence, TTL: ttl}
	x := s.readExtra()
	if !x.weightUnsure {
		request.Weight, request.Limit = int(s.weight), int(s.limit)
	}
	to = append(to, request)
	for _, n := range x.more {
		request.Name, request.Fence = n.Name, n.Fence
		to = append(to, request)
	}
	return to
}

// Result combines the results from the requests for all names. The first lost name decides, or
// otherwise a name with an unknown outcome.
func (s *State) Result(errs []error) (name string, err error) {
	for i, e := range errs {
		if e != nil && !errors.Is(err, driver.ErrLost) {
			err, name = e, s.Name
			if i > 0 {
				name = s.extra.more[i-1].Name
			}
		}
	}
	return name, err
}

// AcquireRequest returns the lease's request, as far as a cancel at now needs it. Its TTL is how
// long the cancel is worth repeating.
func (s *State) AcquireRequest(client string, now time.Duration) driver.AcquireRequest {
	r := driver.AcquireRequest{Name: s.Name, Token: s.Token, Client: client, TTL: s.Times.StoredFor(now), Weight: int(s.weight), Limit: int(s.limit)}
	for _, n := range s.readExtra().more {
		r.With = append(r.With, n.Name)
	}
	return r
}
