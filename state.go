package dibs

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A State is a name's state in the store.
type State struct {
	Name    string
	Holders []Holder // at most 100, those that expire first
	Holding int      // the number of all holders
	Waiters []Waiter // the first 100, in service order
	Waiting int      // the number of all waiters
	Fence   uint64   // at least the largest fence granted on this name; zero if unknown, as from List

	Foreign *Foreign    // set if the lock key holds a value dibs did not write
	Nodes   []NodeState // on a quorum: each node's state, in node order
	Err     error       // from List: the store's user may not read this name, so nothing is known about it
}

// A NodeState is a name's state on a quorum's node, or why it is unknown.
type NodeState struct {
	State State
	Err   error
}

// A Holder describes a name's holder.
type Holder struct {
	Token     Token
	Label     string
	Kind      Kind   // empty if unknown, as for an application's token
	Owner     string // a foreign lock's owner as its library writes it; may be empty
	Exclusive bool   // no other holder is possible: a mutex, a writer, or all permits
	Weight    int    // held share of Limit, such as a semaphore's permits; all if Exclusive
	Limit     int    // how much can be held together; zero if unknown
	Fence     uint64 // zero if the store does not return it: see Client.Revoke
	Reserved  bool   // released, but MinHold or Once keeps the name unavailable

	NeverExpires bool          // only another library's lock can last forever
	Remaining    time.Duration // time until the lease expires if not renewed; zero if it never expires
}

// A Waiter describes a waiter for a name.
type Waiter struct {
	Token     Token
	Label     string
	Kind      Kind // empty if unknown
	Exclusive bool // the request allows no other holder
	Weight    int  // requested share of Limit
	Limit     int
	Waited    time.Duration
}

// A Foreign describes a value, at a lock's key, that dibs did not write: another library's lock, or
// data.
type Foreign struct {
	Key       string // the whole key
	Type      string // the value's type, as the server names it
	Kind      string // the likely content, such as "Redisson RLock" or "counter"
	Lock      bool   // recognised as a lock: its owners are the State's Holders
	Removable bool   // the command dibs unlock --force can end it
	Advice    string // advice for an operator

	NeverExpires bool
	Remaining    time.Duration // until the key expires; zero if it never expires
}

// A Kind names the kind of lock (mutex, reader, semaphore, …) for a call, a lease or a request.
type Kind string

// Kinds of locks.
const (
	KindMutex     Kind = "mutex"
	KindReader    Kind = "reader"
	KindWriter    Kind = "writer"
	KindSemaphore Kind = "semaphore"
	KindMulti     Kind = "multi"
	KindElection  Kind = "election"
	KindOnce      Kind = "once"
	KindAttached  Kind = "attached" // a lease from Client.Attach, whose kind of lock is unknown
)

// stateOf converts a store's state.
func stateOf(s driver.State) State {
	state := State{
		Name: s.Name, Holding: s.Holding, Waiting: s.Waiting, Fence: s.Fence, Foreign: foreignOf(s.Foreign), Err: public(s.Err),
	}
	for _, h := range s.Holders {
		state.Holders = append(state.Holders, holderOf(h))
	}
	for _, w := range s.Waiters {
		state.Waiters = append(state.Waiters, waiterOf(w))
	}
	for _, n := range s.Nodes {
		state.Nodes = append(state.Nodes, NodeState{State: stateOf(n.State), Err: public(n.Err)})
	}
	return state
}

func holderOf(h driver.Holder) Holder {
	weight := h.Weight
	if h.Exclusive() {
		weight = h.Limit
	}
	return Holder{
		Token: Token(h.Token), Label: h.Label, Kind: Kind(h.Kind), Owner: h.Owner, Exclusive: h.Exclusive(), Weight: weight,
		Limit: h.Limit, Fence: h.Fence, Reserved: h.Reserved, NeverExpires: h.NeverExpires(), Remaining: max(h.Remaining, 0),
	}
}

func waiterOf(w driver.Waiter) Waiter {
	return Waiter{
		Token: Token(w.Token), Label: w.Label, Kind: Kind(w.Kind), Exclusive: w.Exclusive(), Weight: w.Weight, Limit: w.Limit,
		Waited: w.Waited,
	}
}

func foreignOf(f *driver.Foreign) *Foreign {
	if f == nil {
		return nil
	}
	return &Foreign{
		Key: f.Key, Type: f.Type, Kind: f.Kind, Lock: f.Lock, Removable: f.Removable(), Advice: f.Advice,
		NeverExpires: f.NeverExpires(), Remaining: max(f.Remaining, 0),
	}
}
