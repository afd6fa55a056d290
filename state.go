package dibs

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A State is the state of one name in the store.
type State struct {
	Name    string
	Holders []Holder // at most 100, those that expire first
	Holding int      // the number of all holders
	Waiters []Waiter // the first 100, in the order of service
	Waiting int      // the number of all waiters
	Fence   uint64   // no fence granted on this name is larger; of List, zero if not known

	Foreign *Foreign    // set if the lock key holds something that dibs did not write
	Nodes   []NodeState // of a quorum: the state on each node, in the order of the nodes
	Err     error       // of List: the user of the store may not read this name, so nothing is known of it
}

// A NodeState is the state of a name on one node of a quorum, or why it is not known.
type NodeState struct {
	State State
	Err   error
}

// A Holder is one holder of a name.
type Holder struct {
	Token     Token
	Label     string
	Kind      Kind   // empty if not known, as for a token of the application
	Owner     string // of a foreign lock: its owner as its library writes it; may be empty
	Exclusive bool   // no other holder is possible: a mutex, a writer, or all permits of a semaphore
	Weight    int    // how much of Limit it has, such as permits of a semaphore: all if Exclusive
	Limit     int    // how much may be held together; zero if not known
	Fence     uint64 // zero if the store does not have it: see Client.Revoke
	Reserved  bool   // released, but MinHold or Once keeps the name unavailable

	NeverExpires bool          // only the lock of another library can last for ever
	Remaining    time.Duration // until the lease expires, unless it is renewed; zero if it never expires
}

// A Waiter is one waiter for a name.
type Waiter struct {
	Token     Token
	Label     string
	Kind      Kind // empty if not known
	Exclusive bool // it wants the name without other holders
	Weight    int  // how much of Limit it wants
	Limit     int
	Waited    time.Duration
}

// A Foreign describes a value at the key of a lock that dibs did not write: the lock of
// another library, or data.
type Foreign struct {
	Key       string // the whole key
	Type      string // its type, as the server names it
	Kind      string // what it looks like: "Redisson RLock", "counter"
	Lock      bool   // it is recognised as a lock: the State has its owners as Holders
	Removable bool   // the command dibs unlock --force can end it
	Advice    string // what an operator can do

	NeverExpires bool
	Remaining    time.Duration // until the key expires; zero if it never does
}

// A Kind is the primitive that a call, a lease or a request belongs to.
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
	KindAttached  Kind = "attached" // a lease of Client.Attach, whose primitive is unknown
)

// stateOf returns the state that a store has returned.
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
