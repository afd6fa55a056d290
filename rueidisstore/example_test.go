package rueidisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

// A single server, here over TLS.
func Example() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"10.0.0.1:6380"},
		TLSConfig:   &tls.Config{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks := dibs.New(rueidisstore.New(client))
	defer locks.Close()

	err = locks.Mutex("order:42").Do(context.Background(), func(ctx context.Context) error {
		return nil // the work; ctx ends if the lease is lost
	}, dibs.Wait(3*time.Second))
	if err != nil {
		fmt.Println(err)
	}
}

// With Sentinel, TopologyRefreshInterval makes rueidis notice a promotion sooner. WithReplicas
// makes it less likely that a failover loses a lock.
func Example_sentinel() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
		Sentinel: rueidis.SentinelOption{
			MasterSet:               "mymaster",
			TopologyRefreshInterval: 100 * time.Millisecond,
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks := dibs.New(rueidisstore.New(client, redisstore.WithReplicas(1, 200*time.Millisecond)))
	defer locks.Close()
}

// In a Redis Cluster, each lock is in a single hash slot. The client finds the other nodes by
// itself.
func Example_cluster() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"10.0.0.1:6379", "10.0.0.2:6379"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks := dibs.New(rueidisstore.New(client))
	defer locks.Close()
}
