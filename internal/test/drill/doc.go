// Package drill tests an adapter on common deployments: a single server, Sentinels, a cluster.
// Servers fail and slots move during the tests. Each adapter's tests call it with functions that
// open a store with the adapter's library.
//
// Package history checks the results, which should be consistent for the callers, however the
// adapter works.
package drill
