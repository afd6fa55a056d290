// Package dibshttp runs the handlers of net/http under a lock, and answers readiness
// probes.
//
//	lock := dibshttp.Lock(func(r *http.Request) (dibs.Doer, error) {
//		return locks.Mutex("order:"+r.PathValue("id"), dibs.Wait(3*time.Second)), nil
//	})
//	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(pay)))
//	mux.Handle("GET /ready", dibshttp.Health(locks.Check))
//
// [Lock] is a middleware, so it fits chi and every router that uses http.Handler.
// docs/services.md shows gin and echo, and the order of a shutdown.
//
// # Responses
//
// If the handler does not run, or its lease is lost, the response is:
//
//	409  another request holds the lock; with Retry-After. BusyStatus sets another status
//	503  the lock store is unavailable, or the dibs.Client is closed; with Retry-After
//	400  the name is invalid, or the lock function returned an error
//	500  the lease was lost while the handler ran, or the lock is used wrongly
//
// A 409 and a 503 mean that the handler did not run, so a retry is safe. After a 500 the
// handler may have run in part without the lock, so the 500 has no Retry-After.
//
// Why 409: RFC 9110 has it for a conflict with the current state of the resource. Clients
// that are made for retries after a lock, or after a concurrent request with the same
// idempotency key, expect it. 423 belongs to WebDAV, whose clients send lock tokens.
//
// # A lost lease
//
// The context of the request ends when the lease is lost. From then on the response is no
// success, whatever the handler does:
//
//   - If the handler has sent no header, its response is replaced by a 500, without the
//     headers that the handler has set.
//   - If it has sent the header of a success, further writes fail. When the handler
//     returns, the middleware panics with http.ErrAbortHandler: the connection of
//     HTTP/1 is closed, and the stream of HTTP/2 is reset. The client receives an error
//     instead of the end of the body.
//   - If it has sent the header of an error, 400 or above, that response stays, unless a
//     write of it is blocked.
//   - If it is blocked in a read or the Close of the request's body, or in a write, that call
//     returns ErrLost at once. The ResponseWriter below must have SetReadDeadline,
//     SetWriteDeadline or Unwrap, as that of net/http has.
//   - A hijacked connection belongs to the handler, which must close it when its context
//     ends.
//
// TestLostInEachState has all states. Nothing is buffered for this. A response that
// the handler writes without Flush, and that fits into the buffers of net/http, is sent only
// after the lock was released. If the handler has sent all bytes of a Content-Length over
// HTTP/1, the client has a success, and nothing can take it back.
//
// # Other middleware
//
// http.TimeoutHandler belongs around the lock. Inside of it, TimeoutHandler returns while
// the handler still runs, and the lock is released. http.MaxBytesHandler also belongs around
// it. With http.MaxBytesReader in the handler, the connection of HTTP/1 is closed if the
// handler responds with 413.
//
// # Waiting
//
// Without dibs.Wait a request waits as long as its client does. Over HTTP/1, net/http
// notices that a client has gone only when the request has no body, or its body was read.
// So set Wait for every handler, well below the write timeout of the server. A request that
// ends its waiting leaves nothing behind.
//
// # Versions
//
// Tested with Go 1.26.0 to 1.27.4.
package dibshttp
