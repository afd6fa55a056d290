package dibshttp

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/dibslock/dibs"
)

// A responseWriter passes a response on until the lease is lost. It records whether the
// header was sent. It has no ReadFrom: io.Copy must stop at the loss.
type responseWriter struct {
	http.ResponseWriter
	ctx    context.Context // ends with the lease
	status int             // of the header that was sent, or zero; 101 if the connection was hijacked
}

// isSuccess reports whether a client takes the response for a success if its body ends
// normally. The client of a hijacked connection has a protocol of its own.
func (w *responseWriter) isSuccess() bool {
	return w.status != http.StatusSwitchingProtocols && w.status < http.StatusBadRequest
}

// refused returns the loss of the lease, or nil while the response may continue. The
// response of an error may end normally.
func (w *responseWriter) refused() error {
	if w.ctx.Err() == nil || !w.isSuccess() {
		return nil
	}
	if cause := context.Cause(w.ctx); errors.Is(cause, dibs.ErrLost) {
		return cause
	}
	return nil
}

// WriteHeader sends the header, unless the lease is lost. A 1xx is not the final header.
func (w *responseWriter) WriteHeader(status int) {
	if w.refused() != nil {
		return
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if err := w.refused(); err != nil {
		return 0, err
	}
	w.sendHeader()
	return w.ResponseWriter.Write(p)
}

// sendHeader records the header that a write or a flush sends implicitly.
func (w *responseWriter) sendHeader() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// Flush is for handlers that require an http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *responseWriter) FlushError() error {
	if err := w.refused(); err != nil {
		return err
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.sendHeader()
	}
	return err
}

// Hijack is for http.ResponseController, and for handlers that require an http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := w.refused(); err != nil {
		return nil, nil, err
	}
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, buffer, err
}

// Unwrap is for the other methods of http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
