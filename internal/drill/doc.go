// Package drill tries an adapter on the set-ups that people run: a server alone, with
// Sentinels, in a cluster; and lets servers die and slots move while it works. Each
// adapter's tests call it with a function that opens a store with its library.
//
// What came of the work is judged by package history: by what the callers were told,
// and not by how it is done.
package drill
