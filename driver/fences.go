package driver

import (
	"context"
	"unicode/utf8"
)

// A FenceReserver is a Store that can reserve further fences for a lease. Without it,
// Lease.ReserveFences returns an error, and a cohort requests each lease from the store.
type FenceReserver interface {
	// ReserveFences reserves r.Count fences for the lease of r.Token, which is exclusive. They
	// are the last r.Count up to the Last of the reply: larger than each fence granted on the
	// name before, and smaller than each granted later. Last is at least r.Least. Nothing else
	// changes: the lease keeps its TTL and its fence, with which Revoke ends it. If the token
	// does not hold the name, the reply is not Held.
	//
	// With r.Count zero it only makes sure that later fences are larger than r.Least. If a reply
	// is lost, the fences of that request are wasted.
	ReserveFences(ctx context.Context, r FenceRequest) (FenceReply, error)
}

// MaxFences is the largest number of fences that one request reserves.
const MaxFences = 1_000_000

// A FenceRequest reserves fences for a lease.
type FenceRequest struct {
	Name  string
	Token string // of the lease
	Count int    // at most MaxFences
	Least uint64 // the last fence is at least this; at most 2^53
}

// A FenceReply is the result of ReserveFences.
type FenceReply struct {
	Held bool   // the token holds the name
	Last uint64 // the last of the fences, if Held
}

// CheckFences returns ErrInvalid for a request of ReserveFences that no store accepts.
func CheckFences(r FenceRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	switch {
	case r.Token == "" || !utf8.ValidString(r.Token):
		return invalidRequest("%q: the token is empty or not UTF-8", r.Name)
	case r.Count < 0 || r.Count > MaxFences:
		return invalidRequest("%q: %d fences are not within 0 to %d", r.Name, r.Count, MaxFences)
	case r.Least > 1<<53:
		return invalidRequest("%q: the least fence %d is larger than 2^53", r.Name, r.Least)
	}
	return nil
}
