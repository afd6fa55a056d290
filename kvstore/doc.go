// Package kvstore makes a lock store from a key-value service. The service needs five functions:
// get, compare-and-swap, watch, list, and the clock for expiry. A Bucket provides these functions,
// and New makes a store from it. The page docs/kvstore.md explains them; examples/natskv is a whole
// store.
//
// Each name is a key. Its value is the lock's state: holders, queue and fence. An operation reads
// the value and the clock, applies the rules of locking, and swaps the value. If another client was
// first, it begins again after a random pause. Many clients can so delay each other if they change
// the same name at the same time; different names do not.
//
// Over makes a store from a service that can run an operation on several names in a single step.
// The memory store and the file store use it.
package kvstore
