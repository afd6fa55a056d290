// Package dibsotel makes OpenTelemetry traces and metrics from dibs hooks:
//
//	locks := dibs.New(store, dibs.Observe(dibsotel.Hooks(dibsotel.Config{})))
//
// # Spans
//
// Each acquiring call makes a span "dibs.lock CLASS". It ends when the call returns. Its
// parent is the span in the call's context. The spans from an instrumented store client,
// such as redisotel, are its children.
//
// A span's kind is internal: only the store client's requests leave the process, and their
// spans have the kind client.
//
// A lost lease makes a short span "dibs.lost CLASS". [Config.HeldSpans] adds a span
// "dibs.held CLASS" for the time a lease is held. Both are children of the span "dibs.lock".
//
// CLASS is the class of the lock's name, such as order:* for order:42, so that there are few
// span names.
//
// Attributes of "dibs.lock", which are set when the call ends:
//
//	dibs.name      name of the lock, unless Config.HideNames is set
//	dibs.more      further names of a multi-lock, likewise
//	dibs.kind      mutex, reader, writer, semaphore, multi, election or once
//	dibs.result    acquired, notified, busy, timeout, canceled, unavailable, closed, wrong_type
//	               or error
//	dibs.fence     fence of the lease
//	dibs.weight    permits of a semaphore that are requested
//	dibs.limit     permits of the whole semaphore
//	dibs.position  in the wait queue when the call joined it; 1 is served next
//	dibs.ticket    in the wait queue
//	dibs.notified  whether the lease came from a hand-off, with a notification
//	dibs.waited    seconds from the beginning of the call
//	error.type     dibs.result of a call that failed
//
// Only calls that joined a wait queue have position, ticket, notified and waited, and the
// events "queued" and "granted". A call without a lease gets the status error, except a Try
// that found the name held. No span from this package contains an owner token.
//
// # Metrics
//
// The instruments, with their attributes:
//
//	dibs.acquire.duration  s        dibs.class, dibs.kind, dibs.result
//	dibs.held.duration     s        dibs.class, dibs.kind, dibs.end (released, lost or unavailable)
//	dibs.handoff.duration  s
//	dibs.holding           {lease}  dibs.class
//	dibs.waiting           {call}   dibs.class
//	dibs.lost              {lease}  dibs.class, dibs.reason
//	dibs.renew.failed      {failure}  dibs.class
//	dibs.renew.duration    s
//	dibs.headroom          1        share of its time that a renewed lease had left
//	dibs.degraded          {client} clients whose store cannot notify waiters
//
// # Versions
//
// Tested with v1.43.0 to v1.47.0 of go.opentelemetry.io/otel.
package dibsotel
