// Package pgstore keeps locks in PostgreSQL 12 or later, in separate tables in a database
// that the program uses anyway.
//
//	store := pgstore.New(pool) // a *pgxpool.Pool, which stays the caller's
//	err := store.Migrate(ctx)  // or the statements of SQL, in a migration tool
//	locks := dibs.New(store)
//
// An acquire or a release is a single round trip. Waiters are notified by LISTEN and NOTIFY, on a
// separate connection for each dibs.Client. The server's clock is used.
//
// You should set connect_timeout in the pool's configuration, for example to 2 s. A connection
// without a reply in time leaves the pool at once, and another connection replaces it. By default,
// pgx tries for two minutes to open the new connection, which occupies a place in the pool
// meanwhile.
//
// A lease can guard a transaction: see [Store.Guard]. Then a stale write is impossible; no lock
// outside the database can promise this.
//
// If an asynchronous standby takes over, it may lack the last leases, like a Redis replica. To lose
// no lease in a failover, use synchronous_standby_names.
package pgstore
