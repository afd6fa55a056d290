package redigostore

import (
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// NewListener returns the Conn for a pool.
func NewListener(pool *redis.Pool) redisconn.Listener { return newSingle(pool) }

// NewClusterListener returns the Conn for a cluster.
func NewClusterListener(nodes []string, pool func(addr string) *redis.Pool) redisconn.Listener {
	return newCluster(nodes, pool)
}
