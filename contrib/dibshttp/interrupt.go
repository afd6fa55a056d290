package dibshttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// past is a deadline in the past.
var past = time.Unix(1, 0)

// An interrupter ends a handler's reads and writes that block when the lease is lost. A client that
// sends nothing, or reads nothing, would block the handler for ever.
//
// It sets deadlines only while a call is in progress, because a deadline in the past ends an HTTP/1
// connection.
type interrupter struct {
	ctx    context.Context // ends with the lease
	writer http.ResponseWriter

	mu               sync.Mutex
	reading, writing int         // calls in progress that began before the loss
	writingLate      int         // error writes in progress that began after the loss
	late             *time.Timer // interrupts the last error write, or nil
	interrupted      bool        // a deadline was set
	unread           bool        // the request has a body, and the handler did not reach its end
	ended            bool        // the handler returned or hijacked the connection, so the writer must not be used
}

// end ends the writer's use, when the handler returned or hijacked the connection.
func (i *interrupter) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
}

// lost returns the lease's loss, or nil.
func (i *interrupter) lost() error {
	if i.ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(i.ctx); errors.Is(cause, dibs.ErrLost) {
		return cause
	}
	return nil
}

// interrupt ends the calls that began before the loss.
func (i *interrupter) interrupt() {
	if i.lost() == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reading+i.writing > 0 {
		i.setDeadlines(i.writing > 0)
	}
}

// interruptLate ends the error writes that began after the loss.
func (i *interrupter) interruptLate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.writingLate > 0 {
		i.setDeadlines(true)
	}
}

// setDeadlines sets deadlines in the past. An HTTP/1 write can block in a read: net/http reads the
// rest of the request before it sends the header. The write deadline comes first, so that the
// read's end does not send a success header.
func (i *interrupter) setDeadlines(writing bool) {
	if i.ended {
		return
	}
	i.interrupted = true
	controller := http.NewResponseController(i.writer)
	if writing {
		_ = controller.SetWriteDeadline(past) // if it is not supported, the call ends when the client acts
	}
	_ = controller.SetReadDeadline(past)
}

// enter counts a call that can block, unless the lease is lost. count counts reads or writes.
// interrupt locks the same mutex, and comes after the loss, so it finds each counted call.
func (i *interrupter) enter(count *int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.lost(); err != nil {
		return err
	}
	*count++
	return nil
}

// enterLate counts an error write after the loss. It gets some time, because an error response can
// end normally.
func (i *interrupter) enterLate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.writingLate++
	i.late = time.AfterFunc(restTimeout, i.interruptLate)
}

// leave ends a call. If the lease is lost, leave returns the loss instead of the call's error.
func (i *interrupter) leave(count *int, err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	*count--
	if count == &i.writingLate {
		i.late.Stop()
	}
	if count == &i.reading && errors.Is(err, io.EOF) {
		i.unread = false
		return err
	}
	if lost := i.lost(); lost != nil && err != nil {
		return lost
	}
	return err
}

// leftRequest reports whether the handler did not read the body to its end, and whether the loss
// interrupted a call.
func (i *interrupter) leftRequest() (unread, interrupted bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.unread, i.interrupted
}

// stopReading bounds how long net/http waits for a client that does not send the rest of its
// request. Call it after the loss, after the handler's return.
func (i *interrupter) stopReading(at time.Time) {
	_ = http.NewResponseController(i.writer).SetReadDeadline(at)
}

// A requestBody is a request's body until the lease is lost.
type requestBody struct {
	io.ReadCloser
	interrupter *interrupter
}

func (b *requestBody) Read(p []byte) (int, error) {
	i := b.interrupter
	if err := i.enter(&i.reading); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	return n, i.leave(&i.reading, err)
}

// Close can block, because net/http's Close reads the rest of the request. After the loss it does
// nothing: net/http closes the body after the handler's return.
func (b *requestBody) Close() error {
	i := b.interrupter
	if err := i.enter(&i.reading); err != nil {
		return err
	}
	return i.leave(&i.reading, b.ReadCloser.Close())
}
