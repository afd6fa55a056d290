// Package zkstore keeps locks in ZooKeeper (3.5 or later).
//
//	store := zkstore.New([]string{"host1:2181", "host2:2181", "host3:2181"})
//	defer store.Close()
//	locks := dibs.New(store)
//
// ZooKeeper writes each change to a majority of its servers. So a failover loses no lock.
package zkstore
