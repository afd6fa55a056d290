// Package mysqlstore keeps locks in MariaDB 10.6 or MySQL 8.0 and later, in separate
// tables in a database that the program uses anyway.
//
//	store := mysqlstore.New(db) // a *sql.DB, which stays the caller's
//	err := store.Migrate(ctx)   // or the statements of SQL, in a migration tool
//	locks := dibs.New(store)
//
// An acquire or a release is one call of a procedure. The server cannot notify a client, so
// each dibs.Client fetches its notifications: often while it has waiters, four times a
// second after Lease.Wanted was called, once a second otherwise. The server's clock is used.
//
// A lease can guard a transaction: see [Store.Guard]. Then a stale write is impossible, which
// no lock outside the database can promise.
//
// A replica that takes over may have missed the last leases, as a Redis replica may.
package mysqlstore
