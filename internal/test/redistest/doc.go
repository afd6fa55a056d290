// Package redistest provides tests with real Redis servers, a small client for them, and
// a network that fails on demand.
//
//   - [Start] runs a redis-server for a test. It can be killed, restarted with its data, and
//     paused. [StartServer] is the same for a program.
//   - [StartReplicated], [StartSentinels] and [StartCluster] run several servers: a master with
//     replicas, the same with sentinels, a cluster. They return when all servers know each other.
//     Their methods kill a master, fail over, move slots, and repair the damage done by a test.
//     [StartTLS] runs a server with TLS.
//   - [Dial] returns a [Conn], an implementation of redisconn.Conn with the standard
//     library: the root module tests its scripts without a client library.
//   - [NewProxy] is a proxy between a client and a server. It delays, freezes, drops and
//     resets connections, and can lose exactly one reply.
//
// The servers are real because the scripts under test are: an imitation of Lua in Redis would be a
// guess. Faults are injected on the wire rather than in a wrapped client, so they reach every
// adapter's pooling, retry and timeout code.
//
// The package imports redisstore, so redisstore's tests that use it must be in package
// redisstore_test.
package redistest
