package view

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
)

// A Holder is a lease on a name.
type Holder struct {
	Token    string    `json:"token"`
	Bytes    []byte    `json:"token_base64,omitempty"` // a whole token that is not UTF-8
	Owner    string    `json:"owner,omitempty"`        // as a foreign lock's library writes it
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Label    string    `json:"label,omitempty"`
	Kind     string    `json:"kind,omitempty"` // as in State; empty for a foreign lock
	Fence    uint64    `json:"fence,omitempty"`
	Since    time.Time `json:"since,omitzero"`     // from the store, or from the fence
	Weight   int       `json:"weight,omitempty"`   // for a shared holder; 0: exclusive
	Limit    int       `json:"limit,omitempty"`    // 0: unlimited or not known
	TTL      *int64    `json:"ttl_ms"`             // null: never expires
	Reserved bool      `json:"reserved,omitempty"` // released, but unavailable until MinHold ends
}

// HolderOf returns a holder with its token's public part.
func HolderOf(h driver.Holder, now time.Time) Holder { return holderOf(h, now).Shortened() }

func holderOf(h driver.Holder, now time.Time) Holder {
	o := OwnerOf(h.Token)
	one := Holder{
		Token: h.Token, Owner: h.Owner, Host: o.Host, PID: o.PID, Label: o.Label, TTL: ttlOf(h.Remaining),
		Kind: kindOf(h.Kind, h.Exclusive()), Fence: h.Fence, Since: sinceOf(h, now), Weight: h.Weight, Limit: limitOf(h.Limit), Reserved: h.Reserved,
	}
	if !utf8.ValidString(h.Token) {
		one.Bytes = []byte(h.Token)
	}
	return one
}

// ttlOf returns a remaining time in ms, or nil for never.
func ttlOf(remaining time.Duration) *int64 {
	if remaining < 0 {
		return nil
	}
	ms := remaining.Milliseconds()
	return &ms
}

// leftOf is the reverse of ttlOf; -1 is never.
func leftOf(ms *int64) time.Duration {
	if ms == nil {
		return -1
	}
	return time.Duration(*ms) * time.Millisecond
}

// sinceOf returns when a lease was acquired, or zero. The fences of some stores are not times.
func sinceOf(h driver.Holder, now time.Time) time.Time {
	if h.Since.IsZero() {
		return SinceOf(h.Fence, now)
	}
	return h.Since.UTC().Truncate(time.Millisecond)
}

// SinceOf returns when a fence was issued: stores derive fences from their clock, in µs. A fence is
// ahead of this time if the clock was once ahead. The result is zero if the fence is not a
// plausible time.
func SinceOf(fence uint64, now time.Time) time.Time {
	const some = uint64(1.6e15) // September 2020; smaller fences are not times
	if fence < some || fence > uint64(now.Add(time.Minute).UnixMicro()) {
		return time.Time{}
	}
	return time.UnixMicro(int64(fence)).UTC().Truncate(time.Millisecond)
}

// String formats the holder for people.
func (h Holder) String() string {
	s := Owner{Host: h.Host, PID: h.PID, Label: h.Label, Short: h.Token}.String()
	if h.Owner != "" {
		s = Safe(h.Owner)
	}
	if h.Reserved {
		s += " [reserved]"
	}
	return s
}

// Left returns the time until the lease expires unless it is renewed, or -1 for never.
func (h Holder) Left() time.Duration { return leftOf(h.TTL) }

// Shortened returns the holder with its token's public part.
func (h Holder) Shortened() Holder {
	h.Token, h.Bytes = OwnerOf(h.Token).Short, nil
	return h
}

// Ago formats the time since the lease was acquired. It returns "" if this is unknown.
func (h Holder) Ago(now time.Time) string {
	if h.Since.IsZero() {
		return ""
	}
	return Brief(max(now.Sub(h.Since), 0))
}

// fenceText formats a lease's fence and its time.
func (h Holder) fenceText(now time.Time) string {
	if h.Fence == 0 {
		return "fence not known yet"
	}
	text := fmt.Sprintf("fence %d", h.Fence)
	if !h.Since.IsZero() {
		text += fmt.Sprintf(", since %s (%s)", h.Since.Local().Format(time.DateTime), h.Ago(now))
	}
	return text
}
