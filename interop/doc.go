// Package interop has no code, only tests: that dibs and other users of the plain
// Redis lock (SET key value NX PX ttl, and a delete that compares the value first)
// exclude each other on one key. Among them are redsync, bsm/redislock, and what
// people write by hand.
//
// Exclusion is all that they share. The others have no queue: they poll, and take
// a free name past whoever waits in dibs' queue. They tell nobody when they release
// it: dibs finds out when it asks again, at the latest half a claim TTL later.
package interop
