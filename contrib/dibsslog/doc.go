// Package dibsslog writes log lines from dibs hooks with log/slog:
//
//	locks := dibs.New(store, dibs.Observe(dibsslog.Hooks(logger, dibsslog.Config{})))
//
// [Config] changes each event's level, or turns it off. The handler receives the call's context, so
// it can add a trace ID or a request ID.
//
// # Attributes
//
//	name      of the lock
//	more      further names of a multi-lock
//	kind      mutex, reader, writer, semaphore, multi, election, once or attached
//	label     of dibs.Label, if there is one
//	fence     of the lease
//	waited    from the beginning of the call to its end
//	notified  the lease came from a hand-off, with a notification
//	held      from the beginning of the lease to its end
//	reason    why a lease was lost
//	left      until a lease is lost, if its renewal fails until then
//	retry     until the next campaign
//	err       the message of an error, as text
//
// No line contains an owner token. An error's message contains the holder's token in its
// short form, like all dibs messages.
//
// # Cost
//
// An event whose level is not enabled costs no allocation. A line costs as much as its
// handler, in the call's goroutine: see dibs.Hooks.
//
// # Versions
//
// Tested with Go 1.26.0 to 1.27.4.
package dibsslog
