package dibshttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// An Option configures the middleware of [Lock].
type Option func(*middleware)

// With adds options, such as dibs.Wait, to the call that acquires the lock for a request. You can
// also set options when you make the lock. The option dibs.OwnerToken is for a single call. With
// it, each request fails with dibs.ErrInvalid, and the response is 400.
func With(options ...dibs.Option) Option {
	return func(m *middleware) { m.options = append(m.options, options...) }
}

// BusyStatus sets the HTTP status of the response when another owner holds the lock. The default is
// 409. Use 423 if clients must distinguish a lock from other conflicts. The status must be 400 to
// 599; any other status is sent as 500.
func BusyStatus(status int) Option {
	return func(m *middleware) { m.busyStatus = status }
}

// OnError sets a function that writes the error response instead of [Error.Write]. The function can
// also only log: if it writes nothing, the middleware calls Error.Write. It must not send the text
// of err.Err to the client, because the text may name the lock's holder. If the lease is lost after
// the handler sent its header, the function is not called. Several goroutines can call the function
// at once.
func OnError(respond func(w http.ResponseWriter, r *http.Request, err *Error)) Option {
	return func(m *middleware) { m.respond = respond }
}

type middleware struct {
	lock       func(*http.Request) (dibs.Doer, error)
	options    []dibs.Option
	busyStatus int
	respond    func(http.ResponseWriter, *http.Request, *Error)
}

// Lock returns a middleware. For each request, the middleware calls the function, acquires the lock
// that the function returned, and then runs the handler. The request's context carries the lease,
// for dibs.Fence. The context ends when the lease is lost. The lock is released when the handler
// returns or panics. The package comment lists the responses if the lock is not acquired, or is
// lost.
//
// If the function returns nil and no error, the handler runs without a lock. If the function
// returns a nil pointer in a dibs.Doer, such as a *dibs.Mutex that was never set, the response is
// 500. If the function returns an [Error], this Error is the response; for any other error the
// response is 400. Several goroutines can call the function at once. It must not read the request's
// body, unless it replaces the body. Lock panics if the function is nil.
//
// If the handler parses a multipart form, its temporary files are removed when the handler returns,
// as in net/http.
//
// If the store does not confirm the release, the response does not change, because the work is
// done. The name becomes free at the latest when the lease's TTL ends. The hook Released in
// dibs.Hooks reports the failed release.
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
	case driver.IsNil(lock): // a *dibs.Mutex that was never set: the handler must not run without a lock
		m.fail(w, r, FromError(errNilLock))
	default:
		m.serveLocked(w, r, next, lock)
	}
}

func (m *middleware) serveLocked(w http.ResponseWriter, r *http.Request, next http.Handler, lock dibs.Doer) {
	var response *responseWriter // nil until the handler starts
	var before http.Header       // from outer middleware
	if len(w.Header()) > 0 {
		before = w.Header().Clone()
	}
	serve := func(ctx context.Context, _ *http.Request) error {
		response = newResponseWriter(ctx, w)
		response.handle(r.WithContext(ctx), next)
		return nil
	}
	// Wrap rejects options for a single call.
	err := dibs.Wrap(func(*http.Request) dibs.Doer { return lock }, serve, m.options...)(r.Context(), r)
	if err == nil && response == nil {
		err = errNotRun
	}
	switch {
	case response == nil:
		m.fail(w, r, m.withBusyStatus(FromError(err)))
	case errors.Is(err, dibs.ErrLost):
		m.endLost(response, r, before, err)
	}
}

// restTimeout is how long the connection stays open after the 500, for the rest of the request.
// Without this time, a client that sends before it reads could miss the response. It also bounds an
// error write that begins after the loss.
const restTimeout = time.Second

// endLost ends a handler's response after its lease was lost. On an HTTP/1 connection, net/http
// would wait for the rest of the request, and take it for the next request after an interrupted
// read: so the connection is closed.
func (m *middleware) endLost(response *responseWriter, r *http.Request, before http.Header, err error) {
	w := response.ResponseWriter
	unread, interrupted := response.leftRequest()
	http1 := r.ProtoMajor == 1
	unread = unread && http1
	switch {
	case response.status == 0:
		replaceHeader(w.Header(), before)
		if unread {
			w.Header().Set("Connection", "close")
		}
		if unread && !interrupted {
			response.stopReading(time.Now().Add(restTimeout))
		}
		m.fail(w, r, FromError(err))
	case response.isSuccess():
		response.stopReading(past)
		panic(http.ErrAbortHandler)
	case http1 && interrupted:
		response.Flush()
		panic(http.ErrAbortHandler)
	}
}

// handle runs the handler. net/http removes its own request's temporary files only, so handle
// removes the copy's.
func (w *responseWriter) handle(r *http.Request, next http.Handler) {
	defer w.end()
	defer context.AfterFunc(w.ctx, w.interrupt)()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body, w.unread = &requestBody{r.Body, &w.interrupter}, true
	}
	parsed := r.MultipartForm // by an outer middleware, whose files these are
	defer func() {
		if r.MultipartForm != nil && r.MultipartForm != parsed {
			_ = r.MultipartForm.RemoveAll() // net/http also ignores the error
		}
	}()
	next.ServeHTTP(w.forHandler(), r)
}

// replaceHeader removes the handler's headers, such as cookies and a location.
func replaceHeader(header, before http.Header) {
	clear(header)
	maps.Copy(header, before)
}

var (
	errNotRun  = errors.New("dibshttp: Do of the lock returned nil without calling its function")
	errNilLock = errors.New("dibshttp: Lock: the lock function returned a nil pointer; return nil itself for no lock")
)

func (m *middleware) withBusyStatus(e *Error) *Error {
	if errors.Is(e.Err, dibs.ErrBusy) {
		e.Status = m.busyStatus
	}
	return e
}

// fail writes a response. An OnError function that writes none would leave an empty 200.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, e *Error) {
	response := newResponseWriter(context.Background(), w)
	if m.respond != nil {
		m.respond(response.forHandler(), r, e)
	}
	if response.status == 0 {
		e.Write(w)
	}
}
