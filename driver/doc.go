// Package driver is the contract between a dibs.Client and the store that keeps its
// locks. Programs that only use locks do not need it. A new store implements [Store] and
// passes the conformance suite, package storetest.
package driver
