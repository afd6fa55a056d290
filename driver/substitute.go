package driver

import (
	"context"
	"slices"
)

// A substitute replaces a store's missing optional interfaces.
type substitute struct{ store Store }

func (s substitute) unsupported(op, name, lacks, advice string) error {
	return &UnsupportedError{Op: op, Name: name, Store: s.store, Interface: lacks, Advice: advice}
}

// Groups returns each name as a separate group.
func (s substitute) Groups(names []string) [][]string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return slices.Collect(slices.Chunk(names, 1))
}

func (s substitute) Resize(_ context.Context, r AcquireRequest) (AcquireReply, error) {
	return AcquireReply{}, s.unsupported("upgrade or downgrade", r.Name, "Resizer", "unlock the lease and lock again")
}

func (s substitute) Revoke(_ context.Context, r RevokeRequest) (bool, error) {
	return false, s.unsupported("revoke", r.Name, "Revoker", "stop its holder, or wait for the end of its TTL")
}

// NotifyWanted returns whether a request waits. No event follows.
func (s substitute) NotifyWanted(ctx context.Context, r WantedRequest) (bool, error) {
	inspector, ok := s.store.(Inspector)
	if !ok {
		return false, s.unsupported("notify wanted", r.Name, "WantedNotifier", "end the lease by a plan of your own")
	}
	state, err := inspector.Inspect(ctx, r.Name)
	if err != nil {
		return false, err
	}
	holds := slices.ContainsFunc(state.Holders, func(h Holder) bool { return h.Token == r.Token && !h.Reserved })
	return holds && state.Waiting > 0, nil
}

func (s substitute) Inspect(_ context.Context, name string) (State, error) {
	return State{}, s.unsupported("inspect", name, "Inspector", "read the service behind it with its own tools")
}

func (s substitute) List(context.Context, string) ([]string, error) {
	return nil, s.unsupported("list", "", "Lister", "inspect the names that you know")
}

func (s substitute) InspectAll(context.Context, []string) ([]State, error) {
	return nil, s.unsupported("inspect", "", "Lister", "inspect each name alone")
}

func (s substitute) ReserveFences(_ context.Context, r FenceRequest) (FenceReply, error) {
	return FenceReply{}, s.unsupported("reserve fences", r.Name, "FenceReserver", "acquire the name again for each fence")
}

// Announce does nothing.
func (substitute) Announce(context.Context, []string) {}

func (s substitute) RevokeForeign(_ context.Context, name string, _ Foreign) (string, error) {
	return "", s.unsupported("revoke the foreign lock", name, "ForeignRevoker", "end it with the library that made it")
}
