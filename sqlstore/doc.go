// Package sqlstore has the code that stores in SQL databases share: the requests of a driver.Store as
// statements, their time limits, the format of notifications, and a store's connections. Pauses
// between attempts and advice for errors of TLS are also here. It is for authors of such stores,
// and has no dependencies. A store provides a Dialect and a Runner.
package sqlstore
