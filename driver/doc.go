// Package driver is the contract between a dibs.Client and the store that keeps its
// locks. Programs that only use locks do not need it. A new store implements [Store], and of the
// optional interfaces those that it can. It passes the conformance suite, package storetest.
//
// Three packages under this one are for authors of stores, too: token reads the owner tokens that
// dibs makes, glob matches names, and guard finds the leases that a context carries.
package driver
