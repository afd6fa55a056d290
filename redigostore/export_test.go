package redigostore

import (
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// NewListener returns the Conn for a pool.
func NewListener(pool *redis.Pool) redisconn.Listener { return newSingle(pool) }
