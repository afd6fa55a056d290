// Package interop tests that dibs and other users of the plain Redis lock exclude each
// other on one key. The plain lock is SET key value NX PX ttl, and a delete that compares
// the value first. The others are redsync, bsm/redislock, and hand-written scripts.
//
// Only exclusion is common. The other libraries have no queue: they poll, and may acquire
// a free name before the waiters in dibs' queue. They do not notify waiters when they
// release a lock: dibs finds out at its next retry, after half a waiter TTL at most.
//
// With DIBS_INTEROP=1, TestMatrix also tests libraries of other languages, through the
// programs in drivers. docs/interop.csv has the results, and docs/interop.md what they mean.
package interop
