package driver

import "slices"

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

// Unwrap returns the store itself, or nil if a decorator has none.
func (f *Full) Unwrap() Store {
	if f == nil {
		return nil
	}
	return f.Store
}

// Innermost returns the store that a chain of decorators forwards to, or nil if there is none.
func Innermost(s Store) Store {
	for {
		decorator, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return s
		}
		s = decorator.Unwrap()
	}
}
