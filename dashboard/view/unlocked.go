package view

import (
	"fmt"
	"strings"
	"time"
)

// An Unlocked is unlock's result.
type Unlocked struct {
	Schema  int      `json:"schema"`
	Name    string   `json:"name"`
	Removed bool     `json:"removed"`
	Why     string   `json:"why,omitempty"` // if not removed: WhyFree, WhyOther
	Did     string   `json:"did,omitempty"` // how a foreign lock was ended
	Kind    string   `json:"-"`             // for a foreign lock
	Ended   []Holder `json:"ended"`
	Holders []Holder `json:"holders"` // the current holders, if known
	Waiting int      `json:"waiting"` // number of waiters before
	Reason  string   `json:"reason,omitempty"`
}

// The values of Unlocked.Why.
const (
	WhyFree  = "free"  // the name is not held
	WhyOther = "other" // another lease holds the name, or the fence is not known
)

// Text formats the result for people. If nothing was removed, it needs a current holder.
func (u Unlocked) Text(now time.Time) string {
	var b strings.Builder
	if !u.Removed {
		h := u.Holders[0]
		if u.Kind != "" {
			fmt.Fprintf(&b, "%s has changed since it was shown, and is held by %s now: nothing was done", Safe(u.Name), h)
			return b.String()
		}
		fmt.Fprintf(&b, "%s is held by %s, %s: nothing was done", Safe(u.Name), h, h.fenceText(now))
		return b.String()
	}
	for _, h := range u.Ended {
		if u.Kind != "" {
			fmt.Fprintf(&b, "%s: ended the foreign lock of %s: %s\n", Safe(u.Name), h, u.Kind)
			continue
		}
		fmt.Fprintf(&b, "%s: revoked the lease of %s, %s\n", Safe(u.Name), h, h.fenceText(now))
	}
	if u.Did != "" {
		fmt.Fprintf(&b, "%s: %s\n", Safe(u.Name), Safe(u.Did))
	}
	if len(u.Holders) > 0 {
		fmt.Fprintf(&b, "%s: now held by %s\n", Safe(u.Name), State{Holders: u.Holders, Holding: len(u.Holders)}.holderSummary())
	}
	if u.Reason != "" {
		fmt.Fprintf(&b, "reason: %s\n", Safe(u.Reason))
	}
	return b.String()
}
