// Package pgstore keeps locks in PostgreSQL 12 or later, in tables of their own in a database
// that the program uses anyway.
//
//	store := pgstore.New(pool) // a *pgxpool.Pool, which stays the caller's
//	err := store.Migrate(ctx)  // or the statements of SQL, in a migration tool
//	locks := dibs.New(store)
//
// An acquire or a release is one round trip. Waiters are notified by LISTEN and NOTIFY, on a
// connection of its own for each dibs.Client. The clock is that of the server.
//
// Set connect_timeout in the pool's configuration, for example to 2 s. A connection whose request
// had no reply in time leaves the pool at once, so that another one takes its place. The default of
// pgx is two minutes to open that, and the pool counts it meanwhile.
//
// A lease can guard a transaction: see [Store.Guard]. Then a stale write is impossible, which
// no lock outside the database can promise.
//
// An asynchronous standby that takes over may have missed the last leases, as a replica of
// Redis. Use synchronous_standby_names if that must not happen.
package pgstore
