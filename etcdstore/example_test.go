package etcdstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A client that connects again soon after an outage, and detects a connection without replies.
func Example() {
	connect := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	connect.Backoff.MaxDelay = 3 * time.Second
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:         []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(connect)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cli.Close() // after the client of dibs

	locks := dibs.New(etcdstore.New(cli, etcdstore.Prefix("team/locks/")))
	defer locks.Close()
	err = locks.Mutex("order:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("nobody else works on the order, on any host")
		return ctx.Err()
	})
	if err != nil {
		log.Println(err)
	}
}
