// Package leasekey has the key under which a context carries leases. It is internal, so that no other
// module can make a context that seems to carry one.
package leasekey

// A Key is the key in a context. It is also the argument of the method that returns the leases: a value
// that answers every key is no carrier, since it cannot name this type.
type Key struct{}
