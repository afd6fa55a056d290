// Package kvstore makes a store of locks from a key-value service. The service has five functions:
// get, compare-and-swap, watch, list, and the clock that judges expiry. They are a Bucket, and New
// makes a store of it. The page docs/kvstore.md explains them; examples/natskv is a whole store.
//
// A name is a key. Its value is the state of the lock: holders, queue and fence. An operation reads
// the value and the clock, applies the rules of locking, and swaps the value. If another client was
// first, it begins again after a random pause. Many clients that change one name at the same time
// so delay each other; names do not.
//
// Over makes a store of a service that can do more: run an operation on several names in one step.
// The memory store and the file store of dibs are made in this way.
package kvstore
