// Package etcdstore keeps locks in etcd (3.4.31, 3.5.13 or later), beside the program's other keys.
//
//	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	locks := dibs.New(etcdstore.New(cli)) // cli stays the caller's
//
// etcd writes each change to a majority of its members. So a failover loses no lock.
//
// A lock's wait queue is a range of keys, in the order of their creation: the format of
// [go.etcd.io/etcd/client/v3/concurrency] and of etcdctl lock. A key there is a holder or a waiter.
// The holders are the first keys whose weights fit. So programs with those libraries and programs
// with dibs exclude each other on a name.
//
// An acquire or a release is a single request. The store renews all leases of a client with the
// same TTL in a single request.
//
// etcd counts in seconds, and its shortest TTL is 2 s with default settings. A TTL below that is
// [driver.ErrInvalid]. After a crash of its holder, a lock becomes free after the TTL and at most 6
// s. A dead waiter blocks the wait queue for at most 10 s, not for [driver.WaiterTTL]. So does a
// holder that waited and ends before its first renewal. After an election, etcd counts these times
// anew. A waiter that was silent for longer is the last in the queue when it returns.
//
// When etcd has used its space ([NOSPACE]), it refuses new locks. Leases can still be renewed,
// released and revoked. A grant to a waiter then lasts for at most [driver.WaiterTTL].
//
// [NOSPACE]: https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota
package etcdstore
