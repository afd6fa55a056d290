package main

import (
	"context"
	"slices"
	"strings"

	"github.com/dibslock/dibs"
)

// heldVar is the environment variable with the owner tokens for all locks that a command runs
// under. These are its own dibs' token and each outer dibs', separated by spaces.
const heldVar = "DIBS_HELD"

// outerTokens returns the outer locks' owner tokens.
func outerTokens(env environment) []string { return strings.Fields(env.get(heldVar)) }

// heldTokens returns heldVar for the command that runs under lease.
func (s *session) heldTokens(lease *dibs.Lease) string {
	return heldVar + "=" + strings.Join(append(slices.Clone(s.outer), string(lease.Token())), " ")
}

// refuseDeadlock rejects an unlimited wait for a name that an outer dibs holds: the outer dibs
// waits for this process in turn.
//
// It asks the store whether the outer lock is still held: this process may be a daemon that
// outlived the outer dibs. A limited wait is allowed, since it ends with ErrBusy.
func (s *session) refuseDeadlock(c *lockRequest) error {
	if len(s.outer) == 0 || c.try || c.wait != noLimit {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), s.store.timeout)
	defer stop()
	for _, name := range c.names {
		state, err := s.locks.Inspect(ctx, name)
		if err == nil && c.blockedBy(state.Holders, s.outer) {
			return usage("%q is held by the outer dibs of this process: waiting would deadlock; pass -n, or -w with a time, or use another name", name)
		}
	}
	return nil
}

// blockedBy reports whether the request cannot be granted while these owners hold the
// name.
func (c *lockRequest) blockedBy(holders []dibs.Holder, owners []string) bool {
	used := 0
	for _, h := range holders {
		switch {
		case !slices.Contains(owners, string(h.Token)):
		case h.Exclusive, !c.shared && c.slots == 0:
			return true
		default:
			used += h.Weight
		}
	}
	return c.slots > 0 && used > c.slots-c.permits
}
