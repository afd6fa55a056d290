// Package driver is the contract between a dibs.Client and the store that keeps its
// locks. Programs that only use locks do not need it. A new store implements [Store], and of the
// optional interfaces those that it can. It passes the conformance suite, package storetest.
//
// Three packages below this one are for authors of stores as well. Package ownertoken reads the tokens
// that dibs makes. Package glob matches names. Package guard finds the leases that a context carries.
package driver
