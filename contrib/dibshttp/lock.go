package dibshttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/dibslock/dibs"
)

// An Option configures the middleware of [Lock].
type Option func(*middleware)

// With adds options to each call of Do, such as dibs.Wait. A mutex can also have them
// itself; a multi-lock accepts them only here.
func With(options ...dibs.Option) Option {
	return func(m *middleware) { m.options = append(m.options, options...) }
}

// BusyStatus sets the status of a response to a request whose lock is held by another
// one. The default is 409. Use 423 if clients have to tell a lock from other conflicts.
// The status is from 400 to 599; any other is sent as 500.
func BusyStatus(status int) Option {
	return func(m *middleware) { m.busyStatus = status }
}

// OnError sets a function that writes the response instead of [Error.Write], or that only
// logs: if it writes nothing, Error.Write follows. It must not send err.Err to the client,
// because its text may name the holder of the lock. It is not called if the header was
// already sent when the lease was lost. It may be called concurrently.
func OnError(respond func(w http.ResponseWriter, r *http.Request, err *Error)) Option {
	return func(m *middleware) { m.respond = respond }
}

type middleware struct {
	lock       func(*http.Request) (dibs.Doer, error)
	options    []dibs.Option
	busyStatus int
	respond    func(http.ResponseWriter, *http.Request, *Error)
}

// Lock returns a middleware that runs each request under the lock that the function lock
// returns for it. The context of the handler's request carries the lease, for dibs.Fence,
// and ends when the lease is lost. The lock is released when the handler has returned or
// panicked. The package comment lists the responses if that fails.
//
// If lock returns nil and no error, the handler runs without a lock. If it returns an
// error, the response is 400, or that of an [Error]. It may be called concurrently, and
// must not read the body of the request, unless it replaces the body. Lock panics if it is
// nil.
//
// A release that the store did not confirm changes nothing about the response: the work is
// done, and the name is free at the latest when its TTL has passed. The hook dibs.Hooks
// Released reports it.
func Lock(lock func(r *http.Request) (dibs.Doer, error), options ...Option) func(http.Handler) http.Handler {
	if lock == nil {
		panic("dibshttp: Lock: nil function")
	}
	m := &middleware{lock: lock, busyStatus: http.StatusConflict}
	for _, option := range options {
		option(m)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	lock, err := m.lock(r)
	switch {
	case err != nil:
		m.fail(w, r, badRequest(err))
	case lock == nil:
		next.ServeHTTP(w, r)
	default:
		m.serveLocked(w, r, next, lock)
	}
}

func (m *middleware) serveLocked(w http.ResponseWriter, r *http.Request, next http.Handler, lock dibs.Doer) {
	var response *responseWriter // nil until the handler starts
	err := lock.Do(r.Context(), func(ctx context.Context) error {
		response = &responseWriter{ResponseWriter: w, ctx: ctx}
		next.ServeHTTP(response, r.WithContext(ctx))
		return nil
	}, m.options...)
	if err == nil && response == nil {
		err = errNotRun
	}
	switch {
	case response == nil:
		m.fail(w, r, m.withBusyStatus(FromError(err)))
	case !errors.Is(err, dibs.ErrLost):
	case response.status == 0:
		m.fail(w, r, FromError(err))
	case response.isSuccess():
		panic(http.ErrAbortHandler)
	}
}

var errNotRun = errors.New("dibshttp: Do of the lock returned nil without calling its function")

func (m *middleware) withBusyStatus(e *Error) *Error {
	if errors.Is(e.Err, dibs.ErrBusy) {
		e.Status = m.busyStatus
	}
	return e
}

// fail writes a response. An OnError function that writes none would leave an empty 200.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, e *Error) {
	response := &responseWriter{ResponseWriter: w, ctx: context.Background()}
	if m.respond != nil {
		m.respond(response, r, e)
	}
	if response.status == 0 {
		e.Write(w)
	}
}
