package driver

import (
	"context"
	"unicode/utf8"
)

// A FenceReserver is a Store that can reserve further fences (fencing tokens) for a lease. With
// another Store, Lease.ReserveFences returns an error, and each call to a cohort.Cohort acquires
// its own lease from the store.
type FenceReserver interface {
	// ReserveFences reserves r.Count fences for the exclusive lease with r.Token. They are the r.Count
	// numbers that end with the reply's Last. They are larger than each earlier fence for the name,
	// and smaller than each later fence. Last is at least r.Least. The lease keeps its TTL and its own
	// fence, which Revoke accepts as before. If the token does not hold the name, or holds it shared,
	// the reply's Held is false.
	//
	// With zero r.Count, ReserveFences reserves no fence, and only makes later fences larger than
	// r.Least. If a reply is lost, its fences are never used.
	ReserveFences(ctx context.Context, r FenceRequest) (FenceReply, error)
}

// MaxFences is the largest number of fences in a single request.
const MaxFences = 1_000_000

// A FenceRequest reserves fences (fencing tokens) for a lease.
type FenceRequest struct {
	Name  string
	Token string // the lease's token
	Count int    // 0 to MaxFences
	Least uint64 // the smallest allowed value for the last reserved fence; 0 to 2^53
}

// A FenceReply is the result of ReserveFences.
type FenceReply struct {
	Held bool   // the token holds the name
	Last uint64 // the last reserved fence, if Held
}

// CheckFences returns ErrInvalid if no store can accept the request to ReserveFences.
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
