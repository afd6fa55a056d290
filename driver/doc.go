// Package driver is the contract between a dibs.Client and the store that keeps its locks. Programs
// that only use locks do not need it.
//
// A new store implements [Store], and as many optional interfaces as it can. It should pass the
// conformance suite, package storetest.
//
// Three packages below driver are also for store authors. Package ownertoken reads the tokens made
// by dibs. Package glob matches names. Package guard finds the leases in a context.
package driver
