// Package interop tests that dibs and other users of the plain Redis lock exclude each other on the
// same key. The plain lock is SET key value NX PX ttl, and a delete that compares the value first.
// The other users are redsync, bsm/redislock, and hand-written scripts.
//
// On Redis only exclusion is common. The other libraries have no queue: they poll, and can acquire a free
// name before the waiters in dibs' queue. They do not notify waiters when they release a lock: dibs
// detects it at its next retry, after at most half a waiter TTL.
//
// With DIBS_INTEROP=1, TestMatrix also tests libraries in other languages, through the programs in
// drivers. docs/interop.csv contains the results, and docs/interop.md explains them.
//
// TestEtcd tests dibs on etcd beside etcd's own tools, which have the same queue as dibs.
// docs/interop-etcd.csv contains the results. TestZooKeeper does the same for libraries on ZooKeeper,
// with the results in docs/interop-zookeeper.csv.
package interop
