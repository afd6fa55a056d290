package redigostore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/redigostore"
	"github.com/gomodule/redigo/redis"
)

// A single server.
func Example() {
	pool := &redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return dial(ctx, "10.0.0.1:6379", time.Second)
		},
	}
	defer pool.Close()
	locks := dibs.New(redigostore.New(pool))
	defer locks.Close()

	err := locks.Mutex("order:42").Do(context.Background(), func(ctx context.Context) error {
		return nil // the work; ctx ends if the lease is lost
	}, dibs.Wait(3*time.Second))
	if err != nil {
		fmt.Println(err)
	}
}

// With Sentinel, the pool queries the sentinels for the master whenever it opens a
// connection.
func Example_sentinel() {
	sentinels := []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"}
	pool := &redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return dialMaster(ctx, sentinels, "mymaster")
		},
	}
	defer pool.Close()
	locks := dibs.New(redigostore.New(pool))
	defer locks.Close()
}

// dialMaster connects to the master named by the first available sentinel.
func dialMaster(ctx context.Context, sentinels []string, name string) (redis.Conn, error) {
	var errs []error
	for _, sentinel := range sentinels {
		conn, err := dialMasterVia(ctx, sentinel, name)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialMasterVia(ctx context.Context, sentinel, name string) (redis.Conn, error) {
	// The store waits 1 s for a connection, so a short timeout leaves time for the others.
	s, err := dial(ctx, sentinel, 200*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	addr, err := redis.Strings(s.Do("SENTINEL", "get-master-addr-by-name", name))
	if err != nil || len(addr) != 2 {
		return nil, fmt.Errorf("%s knows no master %s: %w", sentinel, name, err)
	}
	conn, err := dial(ctx, net.JoinHostPort(addr[0], addr[1]), 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	role, err := redis.Values(conn.Do("ROLE")) // the sentinel may not know about a promotion yet
	if err == nil && string(role[0].([]byte)) != "master" {
		err = fmt.Errorf("%v is a %s", addr, role[0])
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func dial(ctx context.Context, addr string, timeout time.Duration) (redis.Conn, error) {
	return redis.DialContext(ctx, "tcp", addr,
		redis.DialConnectTimeout(timeout), redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
}
