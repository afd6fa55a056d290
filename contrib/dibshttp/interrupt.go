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

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// An interrupter ends the reads and writes of a handler that are blocked when the lease is
// lost. A client that sends nothing, or reads nothing, would block the handler for ever.
//
// It sets deadlines only while a call is in progress, because a deadline in the past ends the
// connection of HTTP/1.
type interrupter struct {
	ctx    context.Context // ends with the lease
	writer http.ResponseWriter

	mu               sync.Mutex
	reading, writing int         // calls in progress that began before the loss
	writingLate      int         // writes of an error in progress that began after it
	late             *time.Timer // interrupts the last of those, or nil
	interrupted      bool        // a deadline was set
	unread           bool        // the request has a body, and the handler has not found its end
	ended            bool        // the handler has returned or hijacked the connection, so the writer must not be used
}

// end ends the use of the writer, when the handler has returned or hijacked the connection.
func (i *interrupter) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
}

// lost returns the loss of the lease, or nil.
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

// interruptLate ends the writes of an error that began after the loss.
func (i *interrupter) interruptLate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.writingLate > 0 {
		i.setDeadlines(true)
	}
}

// setDeadlines sets deadlines in the past. A write of HTTP/1 may be blocked in a read: net/http
// reads the rest of the request before it sends the header. The deadline of the write is
// first, so that the end of that read does not send the header of a success.
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

// enter counts a call that may block, unless the lease is lost. The count is that of reads or
// writes. interrupt has the same mutex, and comes after the loss, so it finds each call that
// is counted.
func (i *interrupter) enter(count *int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.lost(); err != nil {
		return err
	}
	*count++
	return nil
}

// enterLate counts a write of an error, after the loss. It has some time, because the response
// of an error may end normally.
func (i *interrupter) enterLate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.writingLate++
	i.late = time.AfterFunc(restTimeout, i.interruptLate)
}

// leave ends a call. If the lease is lost, an error of the call is the loss.
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

// leftRequest reports what the handler has left: a body that it has not read to its end, and
// whether the loss has interrupted a call.
func (i *interrupter) leftRequest() (unread, interrupted bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.unread, i.interrupted
}

// stopReading bounds how long net/http waits for a client that does not send the rest of its
// request. It is called after the loss, when the handler has returned.
func (i *interrupter) stopReading(at time.Time) {
	_ = http.NewResponseController(i.writer).SetReadDeadline(at)
}

// A requestBody is the body of a request until the lease is lost.
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

// Close may block, because that of net/http reads the rest of the request. After the loss it
// does nothing: net/http closes the body when the handler has returned.
func (b *requestBody) Close() error {
	i := b.interrupter
	if err := i.enter(&i.reading); err != nil {
		return err
	}
	return i.leave(&i.reading, b.ReadCloser.Close())
}
