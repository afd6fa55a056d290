package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/dibslock/dibs/driver"
)

// repeated is a store whose client loses the first reply to each request, which the store executed,
// and sends the request again.
type repeated struct{ *driver.Full }

func (s repeated) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if a, err := s.Store.Acquire(ctx, r); err != nil {
		return a, err
	}
	return s.Store.Acquire(ctx, r)
}

func (s repeated) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := s.Store.Cancel(ctx, r); err != nil {
		return err
	}
	return s.Store.Cancel(ctx, r)
}

func (s repeated) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if a, err := s.Full.Resize(ctx, r); err != nil {
		return a, err
	}
	return s.Full.Resize(ctx, r)
}

// Release returns true if the token held the name at the first request, which a client whose
// reply is lost cannot know.
func (s repeated) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return twice(func() (bool, error) { return s.Store.Release(ctx, r) })
}

// Revoke returns true if there was such a lease at the first request.
func (s repeated) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	return twice(func() (bool, error) { return s.Full.Revoke(ctx, r) })
}

// twice returns true if either request does.
func twice(request func() (bool, error)) (bool, error) {
	first, err := request()
	if err != nil {
		return first, err
	}
	second, err := request()
	return first || second, err
}

func (s repeated) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	_ = s.Store.Extend(ctx, requests)
	return s.Store.Extend(ctx, requests)
}

func (s repeated) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	if wanted, err := s.Full.NotifyWanted(ctx, r); err != nil {
		return wanted, err
	}
	return s.Full.NotifyWanted(ctx, r)
}

func (s repeated) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	if reply, err := s.Full.ReserveFences(ctx, r); err != nil {
		return reply, err
	}
	return s.Full.ReserveFences(ctx, r)
}

// notRepeated are cases that do not run with lost replies. In the first line, a lost reply changes
// nothing: the cases read states, or wait for the end of a queue entry. In the second line, the
// cases send many requests, and would take long. In "partial loss", only the first reply names the
// lost lease, and in "multi-lock waits", a repeated release can send a second EventRetry, which is
// a hint.
var notRepeated = []string{
	"dead waiter", "dead first waiter", "heavy first waiter leaves", "dead multi-lock", "wanted and dead waiters", "inspect", "inspect shared", "invalid names", "any name", "ended context", "groups",
	"clients", "shared clients", "multi-lock clients", "fifo", "exclusion", "limit",
	"partial loss", "multi-lock waits",
}

// LostReplyCases returns cases from Cases, with lost first replies: the store executed the request,
// and receives it again. Run and RunInBubble also run them.
func LostReplyCases() []Case {
	cases := slices.Concat(nameCases(), sharedCases(), multiCases(), wantedCases(), fenceCases(), revokeTokenCases())
	cases = slices.DeleteFunc(cases, func(c Case) bool { return slices.Contains(notRepeated, c.Name) })
	return repeatEach(cases)
}

// lostVoteReplyCases returns the same for VoteCases.
func lostVoteReplyCases() []Case {
	exactFence := func(c Case) bool { return c.Name == "vote fence" || c.Name == "vote resize" } // a repeated request gets a new fence
	return repeatEach(slices.DeleteFunc(VoteCases(), exactFence))
}

func repeatEach(cases []Case) []Case {
	for i, c := range cases {
		cases[i] = Case{c.Name + ", replies lost", c.Requirement + ", also if replies are lost", func(t *testing.T, s *driver.Full) { c.Run(t, driver.Complete(repeated{s})) }}
	}
	return cases
}
