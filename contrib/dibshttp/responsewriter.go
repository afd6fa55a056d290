package dibshttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
)

// A responseWriter passes a response on until the lease is lost. It records whether the header was
// sent. It has no ReadFrom: io.Copy must stop at the loss.
type responseWriter struct {
	http.ResponseWriter
	interrupter
	status int // from the sent header, or zero; 101 if the connection was hijacked
}

func newResponseWriter(ctx context.Context, w http.ResponseWriter) *responseWriter {
	return &responseWriter{ResponseWriter: w, interrupter: interrupter{ctx: ctx, writer: w}}
}

// forHandler returns the writer with the inner writer's optional methods. Code that finds an
// http.Hijacker, for example, uses it, so a writer must only have methods that work.
func (w *responseWriter) forHandler() http.ResponseWriter {
	switch {
	case has[http.Hijacker](w.ResponseWriter):
		return hijackable{w}
	case has[http.Pusher](w.ResponseWriter):
		return pushable{w}
	}
	return w
}

// has reports whether http.ResponseController would find an interface's methods.
func has[T any](w http.ResponseWriter) bool {
	_, ok := find[T](w)
	return ok
}

func find[T any](w http.ResponseWriter) (T, bool) {
	for {
		if found, ok := w.(T); ok {
			return found, true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			var none T
			return none, false
		}
		w = wrapper.Unwrap()
	}
}

// isSuccess reports whether a client takes the response for a success if its body ends normally. A
// hijacked connection's client uses its own protocol.
func (w *responseWriter) isSuccess() bool {
	return w.status != http.StatusSwitchingProtocols && w.status < http.StatusBadRequest
}

// refused returns the lease's loss, or nil while the response can continue. An error response can
// end normally.
func (w *responseWriter) refused() error {
	if !w.isSuccess() {
		return nil
	}
	return w.lost()
}

// enterWrite counts a write that can block, unless it is refused. It returns the count, for leave.
func (w *responseWriter) enterWrite() (count *int, err error) {
	err = w.enter(&w.writing)
	if err == nil || w.isSuccess() {
		return &w.writing, err
	}
	w.enterLate()
	return &w.writingLate, nil
}

// WriteHeader sends the header, unless the lease is lost. A 1xx is not the final header, and
// net/http sends it at once.
func (w *responseWriter) WriteHeader(status int) {
	count, err := w.enterWrite()
	if err != nil {
		return
	}
	defer func() { _ = w.leave(count, nil) }()
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	if w.status == http.StatusRequestEntityTooLarge {
		w.closeAfterTooLarge()
	}
	w.ResponseWriter.WriteHeader(status)
}

// closeAfterTooLarge makes net/http close the connection instead of reading the rest of the
// request. http.MaxBytesReader does so itself, but only with a net/http writer.
func (w *responseWriter) closeAfterTooLarge() {
	_, _ = http.MaxBytesReader(w.ResponseWriter, io.NopCloser(strings.NewReader("more")), 0).Read(make([]byte, 1))
}

func (w *responseWriter) Write(p []byte) (int, error) {
	count, err := w.enterWrite()
	if err != nil {
		return 0, err
	}
	w.sendHeader()
	n, err := w.ResponseWriter.Write(p)
	return n, w.leave(count, err)
}

// sendHeader records the header implicitly sent by a write or a flush.
func (w *responseWriter) sendHeader() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// Flush is for handlers that require an http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *responseWriter) FlushError() error {
	count, err := w.enterWrite()
	if err != nil {
		return err
	}
	err = http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.sendHeader()
	}
	return w.leave(count, err)
}

// Unwrap is for http.ResponseController's other methods.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A hijackable writer is the responseWriter for HTTP/1.
type hijackable struct{ *responseWriter }

// Hijack is for http.ResponseController, and for handlers that require an http.Hijacker.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := w.refused(); err != nil {
		return nil, nil, err
	}
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
		w.end()
	}
	return conn, buffer, err
}

// A pushable writer is the responseWriter for HTTP/2.
type pushable struct{ *responseWriter }

// Push implements http.Pusher.
func (w pushable) Push(target string, options *http.PushOptions) error {
	if err := w.refused(); err != nil {
		return err
	}
	pusher, _ := find[http.Pusher](w.ResponseWriter)
	return pusher.Push(target, options)
}
