// Package driver is the contract between a dibs.Client and the store that keeps its
// locks. Programs that use locks do not need it; a new store implements [Store] and
// passes the tests of package storetest.
package driver
