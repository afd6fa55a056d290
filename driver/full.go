package driver

import (
	"context"
	"slices"
)

// A Full is a store with all optional interfaces: its own ones, and a substitute for each one that it
// lacks. A substitute does less where that is of use: see the comment of each interface. Otherwise it
// returns an [UnsupportedError].
//
// A decorator, which is a store that forwards to another one, embeds the *Full of that store and
// replaces the methods that it changes. A decorator that embeds a Store hides its optional
// interfaces.
type Full struct {
	Store
	Grouper
	Resizer
	Revoker
	WantedNotifier
	Inspector
	Lister
	FenceReserver
	Announcer
	ForeignRevoker

	missing []string
}

// Complete returns a store with all optional interfaces. It is called once for a store, not for each
// request.
func Complete(s Store) *Full {
	if full, ok := s.(*Full); ok {
		return full
	}
	f := &Full{Store: s}
	if decorator, ok := s.(interface{ Missing() []string }); ok {
		f.missing = decorator.Missing()
	}
	other := substitute{s}
	f.Grouper = find[Grouper](f, "Grouper", other)
	f.Resizer = find[Resizer](f, "Resizer", other)
	f.Revoker = find[Revoker](f, "Revoker", other)
	f.WantedNotifier = find[WantedNotifier](f, "WantedNotifier", other)
	f.Inspector = find[Inspector](f, "Inspector", other)
	f.Lister = find[Lister](f, "Lister", other)
	f.FenceReserver = find[FenceReserver](f, "FenceReserver", other)
	f.Announcer = find[Announcer](f, "Announcer", other)
	f.ForeignRevoker = find[ForeignRevoker](f, "ForeignRevoker", other)
	return f
}

func find[T any](f *Full, name string, other T) T {
	if own, ok := f.Store.(T); ok {
		return own
	}
	f.missing = append(f.missing, name)
	return other
}

// Missing returns the names of the optional interfaces that the store lacks. A decorator lacks those
// of the store that it embeds. One that adds an interface replaces Missing.
func (f *Full) Missing() []string {
	if f == nil { // of a decorator of nothing, which fails at its first request
		return nil
	}
	return slices.Clone(f.missing)
}

// Has reports whether the store has an optional interface, by its name.
func (f *Full) Has(name string) bool { return !slices.Contains(f.missing, name) }

// Unwrap returns the store itself.
func (f *Full) Unwrap() Store { return f.Store }

// Innermost returns the store that a chain of decorators forwards to.
func Innermost(s Store) Store {
	for {
		decorator, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return s
		}
		s = decorator.Unwrap()
	}
}

// A substitute stands in for the optional interfaces that a store lacks.
type substitute struct{ store Store }

func (s substitute) unsupported(op, name, lacks, advice string) error {
	return &UnsupportedError{Op: op, Name: name, Store: s.store, Interface: lacks, Advice: advice}
}

// Groups returns each name as a group of its own.
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
