package view

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// The kinds for names, holders and waiters are the values of driver.Kind, and these. A token chosen
// by the application does not say its kind.
const (
	KindShared  = "shared"  // a token with unknown kind that is not exclusive
	KindForeign = "foreign" // a foreign lock
)

// kindOf returns a holder's or a waiter's kind. An exclusive token with unknown kind is a mutex.
func kindOf(known driver.Kind, exclusive bool) string {
	switch {
	case known != "":
		return string(known)
	case exclusive:
		return string(driver.KindMutex)
	}
	return KindShared
}

// waiterKind returns a waiter's kind, or "" if the store does not have its weight.
func waiterKind(w driver.Waiter) string {
	if w.Kind == "" && w.Weight == 0 {
		return ""
	}
	return kindOf(w.Kind, w.Exclusive())
}

// limitOf returns a limit, or 0 if it is unlimited or not known.
func limitOf(limit int) int {
	if limit == driver.Unlimited {
		return 0
	}
	return limit
}

// setKind sets the name's kind, and a semaphore's limit, from the first holder whose token says its
// kind.
func (n *State) setKind(holders []driver.Holder) {
	if len(holders) == 0 {
		return
	}
	first := firstKnown(holders)
	n.Kind = kindOf(first.Kind, first.Exclusive())
	if first.Kind == driver.KindSemaphore {
		n.Limit = limitOf(first.Limit)
	}
}

// firstKnown returns the first holder whose token says its kind, or otherwise the first holder.
func firstKnown(holders []driver.Holder) driver.Holder {
	for _, h := range holders {
		if h.Kind != "" {
			return h
		}
	}
	return holders[0]
}

// Kinds returns the kinds for held names, as in Summary.Kind.
func Kinds() []string {
	return []string{
		string(driver.KindMutex), string(driver.KindReader), string(driver.KindWriter), string(driver.KindSemaphore), string(driver.KindMulti),
		string(driver.KindElection), string(driver.KindOnce), string(driver.KindAttached), KindShared, KindForeign,
	}
}

// permits returns how many of a semaphore's permits are held, or false if this is unknown.
func (n State) permits() (held int, known bool) {
	for _, h := range n.Holders {
		if h.Weight == 0 {
			return n.Limit, n.Limit > 0
		}
		held += h.Weight
	}
	return held, n.Limit > 0 && len(n.Holders) == n.Holding
}

// KindWord returns the word for a kind in texts.
func KindWord(kind string) string {
	switch driver.Kind(kind) {
	case driver.KindMulti:
		return "multi-lock"
	case driver.KindOnce:
		return "periodic job"
	}
	return kind
}

// kindText returns the kind for people, with a semaphore's permits. For a value that dibs did not
// write, it is the value's likely origin.
func (n State) kindText() string {
	if n.Foreign != nil {
		return Safe(n.Foreign.Kind)
	}
	held, known := n.permits()
	switch {
	case n.Kind != string(driver.KindSemaphore) || n.Limit == 0:
		return KindWord(n.Kind)
	case known:
		return fmt.Sprintf("semaphore %d of %d", held, n.Limit)
	}
	return fmt.Sprintf("semaphore of %d", n.Limit)
}
