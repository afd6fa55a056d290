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
// Set connect_timeout in the pool's configuration, for example to 2 s. A connection whose request
// had no reply in time leaves the pool at once, and another takes its place. The pgx default is two
// minutes to open that connection, and the pool counts it meanwhile.
//
// A lease can guard a transaction: see [Store.Guard]. Then a stale write is impossible, which
// no lock outside the database can promise.
//
// An asynchronous standby that takes over may have missed the last leases, as a Redis
// replica may. Use synchronous_standby_names if this must not happen.
package pgstore
