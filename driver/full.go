package driver

import "slices"

// A Full is a store with all optional interfaces: the store's own interfaces, and a substitute for
// each missing interface. The substitute Grouper returns each name as a separate group. The
// substitute WantedNotifier inspects the name, if the store is an Inspector. The substitute
// Announcer does nothing. All other substitute methods return an [UnsupportedError].
//
// A decorator is a store that forwards to another store. It should embed the other store's *Full,
// which Complete returns, and replace only the methods that change. A decorator that embeds only a
// Store hides the optional interfaces.
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

// Complete returns a store with all optional interfaces. It should be called once for each store,
// not for each request.
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

// Missing returns the names of the optional interfaces that the store lacks, such as "Revoker". A
// decorator (a store that embeds a *Full) inherits this list. A decorator that adds an interface
// must replace Missing.
func (f *Full) Missing() []string {
	if f == nil { // an empty decorator, which fails at its first request
		return nil
	}
	return slices.Clone(f.missing)
}

// Has reports whether the store itself implements the optional interface with this name: "Revoker".
func (f *Full) Has(name string) bool { return !slices.Contains(f.missing, name) }

// Unwrap returns the store that was passed to Complete, or nil for a nil Full.
func (f *Full) Unwrap() Store {
	if f == nil {
		return nil
	}
	return f.Store
}

// Innermost returns the store at the end of a chain of decorators, or nil if there is none.
func Innermost(s Store) Store {
	for {
		decorator, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return s
		}
		s = decorator.Unwrap()
	}
}
