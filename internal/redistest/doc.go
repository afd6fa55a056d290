// Package redistest gives tests a real Redis server, a small client for it, and
// a network that fails on demand.
//
//   - [Start] runs a redis-server of its own for one test: it can be killed,
//     restarted with its data, and paused. [StartServer] is the same for a plain
//     program.
//   - [StartReplicated], [StartSentinels] and [StartCluster] run several: a master
//     with replicas, the same with sentinels, a cluster with nodes. They return
//     when all know each other, kill a master, fail over, move slots, and put
//     together again what a test has broken, so that it can be broken again.
//     [StartTLS] runs one that speaks TLS.
//   - [Dial] returns a [Conn], the standard library's answer to
//     redisstore.Conn: the root module tests its scripts without requiring any
//     client library.
//   - [NewProxy] stands between any client and a server: it delays, freezes,
//     drops, resets, and loses exactly the one reply a test is about.
//
// A server is real because the scripts under test are: a Lua semantics that is
// imitated is a Lua semantics that is guessed. The faults are on the wire rather
// than in a wrapped client, so that they meet every adapter's own pooling, retry
// and timeout code.
//
// The package imports redisstore, so tests of redisstore that use it live in
// package redisstore_test.
package redistest
