package main

import (
	"context"
	"slices"
	"strings"

	"github.com/dibslock/dibs"
)

// heldVar is the environment variable in which a command finds the owners of the locks that
// it runs under: its own, and those of each dibs around it, with spaces between.
const heldVar = "DIBS_HELD"

// around is what a command finds there.
func (a *app) heldTokens(lease *dibs.Lease) string {
	return heldVar + "=" + strings.Join(append(strings.Fields(a.getenv(heldVar)), lease.Token()), " ")
}

// nested refuses to wait for what a dibs around this process holds: that waits for this
// process in turn. The store knows whether it still holds: the environment may be that of a
// daemon which has outlived it. Who waits for a limited time is told soon enough that the
// name is taken.
func (a *app) refuseDeadlock(locks *dibs.Client, c *lockRequest) error {
	held := strings.Fields(a.getenv(heldVar))
	if len(held) == 0 || c.try || c.wait != noLimit {
		return nil
	}
	ctx, stop := a.withTimeout(context.Background())
	defer stop()
	for _, name := range c.names {
		state, err := locks.Inspect(ctx, name)
		if err == nil && c.blockedBy(state.Holders, held) {
			return usage("%q is held by the dibs that this one runs inside of, and each would wait for the other for ever: give -n, or -w with a time, or another name", name)
		}
	}
	return nil
}

// blockedBy reports whether a claim cannot be served while these owners hold.
func (c *lockRequest) blockedBy(holders []dibs.Holder, owners []string) bool {
	used := 0
	for _, h := range holders {
		switch {
		case !slices.Contains(owners, h.Token):
		case h.Weight == 0, !c.shared && c.slots == 0:
			return true
		default:
			used += h.Weight
		}
	}
	return c.slots > 0 && used > c.slots-c.permits
}
