package goredisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// A single server, here over TLS.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6380", TLSConfig: &tls.Config{}})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()

	err := locks.Mutex("order:42").Do(context.Background(), func(ctx context.Context) error {
		return nil // the work; ctx ends if the lease is lost
	}, dibs.Wait(3*time.Second))
	if err != nil {
		fmt.Println(err)
	}
}

// With Sentinel, the client follows the master. WithReplicas makes it less likely that a failover
// loses a lock.
func Example_sentinel() {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
	})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb, redisstore.WithReplicas(1, 200*time.Millisecond)))
	defer locks.Close()
}

// In a Redis Cluster, each lock is in a single hash slot. The client finds the other nodes by
// itself.
func Example_cluster() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"},
	})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
}
