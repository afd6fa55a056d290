// Package sqlstore contains the common parts of stores in SQL databases: a driver.Store's requests
// as statements, their time limits, the notification format, and a store's connections. Pauses
// between attempts and advice for TLS errors are also here. It is for authors of such stores, and
// needs no dependencies. A store provides a Dialect and a Runner.
package sqlstore
