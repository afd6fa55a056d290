// Package mysqlstore keeps locks in MariaDB 10.6 or MySQL 8.0 and later, in separate
// tables in a database that the program uses anyway.
//
//	store := mysqlstore.New(db) // a *sql.DB, which stays the caller's
//	err := store.Migrate(ctx)   // or the statements of SQL, in a migration tool
//	locks := dibs.New(store)
//
// An acquire or a release is a single procedure call. The server cannot notify a client, so each
// dibs.Client fetches its notifications: often while it waits, four times a second after a call to
// Lease.Wanted, and otherwise once a second. The server's clock is used.
//
// A lease can guard a transaction: see [Store.Guard]. Then a stale write is impossible; no lock
// outside the database can promise this.
//
// If a replica takes over, it may lack the last leases, like a Redis replica.
package mysqlstore
