// Package dibshttp runs net/http handlers under a lock, and answers readiness probes.
//
//	lock := dibshttp.Lock(func(r *http.Request) (dibs.Doer, error) {
//		return locks.Mutex("order:"+r.PathValue("id"), dibs.Wait(3*time.Second)), nil
//	})
//	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(pay)))
//	mux.Handle("GET /ready", dibshttp.Health(locks.Check))
//
// [Lock] is a middleware, so it fits chi and every router that uses http.Handler.
// docs/services.md shows gin and echo, and the shutdown order.
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
// A 409 and a 503 mean that the handler did not run, so a retry is safe. After a 500 the handler
// may have run in part without the lock, so the 500 does not contain Retry-After.
//
// Why 409: in RFC 9110 it means a conflict with the current state of the resource. Clients
// that retry after a lock, or after a concurrent request with the same idempotency key,
// expect it. 423 belongs to WebDAV, whose clients send lock tokens.
//
// # A lost lease
//
// The request's context ends when the lease is lost. From then on the response is no
// success, whatever the handler does:
//
//   - If the handler sent no header, its response is replaced by a 500, without the
//     handler's headers.
//   - If it sent a success header, further writes fail. When the handler returns, the
//     middleware panics with http.ErrAbortHandler: an HTTP/1 connection is closed, and an
//     HTTP/2 stream is reset. The client receives an error instead of the end of the body.
//   - If it sent an error header, 400 or above, this response stays, unless one of its
//     writes is blocked.
//   - If it is blocked in a read or the Close of the request's body, or in a write, the call
//     returns ErrLost at once. The ResponseWriter below must have SetReadDeadline,
//     SetWriteDeadline or Unwrap, like the net/http writer.
//   - A hijacked connection belongs to the handler, which must close it when its context
//     ends.
//
// TestLostInEachState contains all states. Nothing is buffered for this. A response written
// without Flush is sent only after the lock was released, if it fits into net/http's buffers.
// If the handler sent all Content-Length bytes over HTTP/1, the client received a success,
// and nothing can take it back.
//
// # Other middleware
//
// http.TimeoutHandler should be around the lock. Inside the lock, TimeoutHandler returns while the
// handler still runs, and the lock is released. http.MaxBytesHandler should also be around the
// lock. With http.MaxBytesReader in the handler, an HTTP/1 connection is closed if the handler
// responds with 413.
//
// # Waiting
//
// Without dibs.Wait a request waits as long as its client does. Over HTTP/1, net/http notices a
// client's disconnection only when the request has no body, or its body was read. So every handler
// should set Wait, well below the server's write timeout. A request that ends its waiting leaves
// nothing behind.
//
// # Versions
//
// Tested with Go 1.26.0 to 1.27.4.
package dibshttp
