package goredisstore

import (
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

// NewServerListener returns the Conn for one server or Sentinel.
func NewServerListener(rdb *redis.Client) redisconn.Listener { return newServerConn(rdb) }

// NewClusterListener returns the Conn for a cluster.
func NewClusterListener(rdb *redis.ClusterClient) redisconn.Listener { return newClusterConn(rdb) }
