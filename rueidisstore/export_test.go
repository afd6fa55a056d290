package rueidisstore

import (
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// NewListener returns the Conn for a client.
func NewListener(client rueidis.Client) redisconn.Listener { return newConn(client) }
