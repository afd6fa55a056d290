package dashboard

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

const (
	maxStreams  = 1000
	writeTime   = 10 * time.Second // limit for each event
	sameEvery   = 15 * time.Second // without a change, an event shows that the stream works
	eventUpdate = "event: update\n"
	eventDelta  = "event: delta\n"
	eventSame   = "event: same\n"
)

// events sends a view's fragment as a server-sent event whenever it changed, until the client
// is gone.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	q, err := h.parseQuery(r, r.URL.Query().Get("view"))
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	defer h.streams.Add(-1)
	if h.streams.Add(1) > maxStreams {
		w.Header().Set("Retry-After", "10")
		h.refuse(w, r, "", refusal{http.StatusServiceUnavailable, "Too many streams", "Too many pages are open."})
		return
	}
	s := stream{writer: w, control: http.NewResponseController(w), zip: acceptsGzip(r)}
	if err := s.begin(); errors.Is(err, http.ErrNotSupported) {
		h.refuse(w, r, "", refusal{http.StatusNotImplemented, "No streams", "The server cannot send events."})
		return
	} else if err != nil {
		return // the client is gone
	}
	after := afterOf(r)
	for snapshot := range h.hub.Follow(r.Context()) {
		f := h.frames.of(snapshot)
		if f.began().Before(after) && snapshot.Err == nil {
			continue // older than the page
		}
		fragment, err := h.rendered(r.Context(), f, q, h.runs.latest())
		if err != nil {
			fragment, err = h.failed(f, q, err)
		}
		if err != nil || s.send(fragment) != nil {
			return
		}
	}
}

// failed returns the fragment for a query that cannot be shown.
func (h *handler) failed(f *frame, q query, err error) (*fragment, error) {
	html, err := fragmentOf(headOf(f, nil, q.view), failure(refusalOf(err).text))
	return newFragment(html), err
}

// afterOf returns the time of the states in the page before the events, or zero.
func afterOf(r *http.Request) time.Time {
	ms, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// fragment answers once with the same data as events: for a browser without a free connection for a
// stream.
func (h *handler) fragment(w http.ResponseWriter, r *http.Request) {
	q, err := h.parseQuery(r, r.URL.Query().Get("view"))
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	fragment, err := h.rendered(r.Context(), h.latest(r.Context()), q, h.runs.latest())
	if err != nil {
		h.refuse(w, r, "", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(fragment.html) // the client is gone
}

// A stream writes server-sent events, the first with a whole fragment, and the others with changes.
// A client that does not read ends it.
type stream struct {
	writer  http.ResponseWriter
	control *http.ResponseController
	zip     bool
	last    *fragment
	sent    time.Time // the last event
}

// begin sends the stream's header. It returns an error if the writer cannot flush.
func (s *stream) begin() error {
	if err := s.extend(); err != nil {
		return err
	}
	header := s.writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // for nginx
	header.Set("Vary", "Accept-Encoding")
	if !s.zip {
		return s.flush()
	}
	header.Set("Content-Encoding", "gzip")
	if err := s.flush(); err != nil {
		header.Del("Content-Encoding") // an answer in words follows
		return err
	}
	_, err := s.writer.Write([]byte(gzipHeader)) // is sent with the first event
	return err
}

// flush sends the written data, within the deadline. Until the next event there is no deadline:
// with HTTP/2, it would end a stream that waits for a slow poll.
func (s *stream) flush() error {
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.limit(time.Time{})
}

// extend sets the next write's deadline. Without it, the server's deadline would end the stream.
func (s *stream) extend() error { return s.limit(time.Now().Add(writeTime)) }

// limit sets a deadline. A writer may have none.
func (s *stream) limit(at time.Time) error {
	err := s.control.SetWriteDeadline(at)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// send sends the changes since the last fragment. Without changes, it sends an event that says so,
// but not each time.
func (s *stream) send(f *fragment) error {
	event := f.event(s.last, s.zip)
	s.last = f
	if event == nil {
		if time.Since(s.sent) < sameEvery {
			return nil
		}
		event = encoded(eventSame, []byte("."), s.zip)
	}
	if err := s.extend(); err != nil {
		return err
	}
	s.sent = time.Now()
	if _, err := s.writer.Write(event); err != nil {
		return err
	}
	return s.flush()
}
