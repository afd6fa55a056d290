package dashboard

import (
	"bytes"
	"compress/flate"
	"net/http"
	"strings"
	"sync"
	"weak"
)

// A fragment is a page's view of a frame, as HTML, with the events that send it. It is rendered
// once, and each event is encoded once, for all streams.
type fragment struct {
	html   []byte
	events memo[eventKey, func() []byte]
}

// An eventKey says which values an event depends on beside its fragment.
type eventKey struct {
	from weak.Pointer[fragment] // the client's fragment; zero: nothing
	zip  bool
}

// maxEvents is how many events are kept for a fragment. Streams that are late have other fragments,
// and their events are encoded for each.
const maxEvents = 8

// newFragment returns a fragment. Browsers read no carriage return in an event, and replace invalid
// UTF-8.
func newFragment(html []byte) *fragment {
	html = bytes.ToValidUTF8(bytes.ReplaceAll(html, []byte("\r"), nil), []byte("\uFFFD"))
	return &fragment{html: html}
}

// event returns the event that turns a page with an older fragment into this fragment, or nil if
// they are the same. old may be nil.
func (f *fragment) event(old *fragment, zip bool) []byte {
	encode := func() []byte {
		switch {
		case old == nil:
			return encoded(eventUpdate, f.html, zip)
		case bytes.Equal(old.html, f.html):
			return nil
		}
		if steps, err := deltaOf(string(old.html), string(f.html)); err == nil && len(steps) < len(f.html) {
			return encoded(eventDelta, steps, zip)
		}
		return encoded(eventUpdate, f.html, zip)
	}
	return f.events.of(eventKey{weak.Make(old), zip}, maxEvents, encode, sync.OnceValue[[]byte])()
}

// encoded returns an event. Each data line becomes a line in the event.
func encoded(event string, data []byte, zip bool) []byte {
	var out bytes.Buffer
	out.WriteString(event)
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		out.WriteString("data: ")
		out.Write(line)
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	if !zip {
		return out.Bytes()
	}
	return deflated(out.Bytes())
}

// gzipHeader is how a compressed stream begins. It has no end, which would need a checksum.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.DefaultCompression) // fails only for an unknown level
	return w
}}

// deflated returns a part for a compressed stream. It refers to no part before it, so that streams
// with different parts before can share it.
func deflated(text []byte) []byte {
	var out bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&out)
	_, _ = w.Write(text) // a buffer accepts everything
	_ = w.Flush()
	return out.Bytes()
}

// acceptsGzip reports whether a client can read a compressed answer.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(coding) == "gzip" {
			return !strings.HasPrefix(strings.ReplaceAll(weight, " ", ""), "q=0") || strings.ContainsAny(weight, "123456789")
		}
	}
	return false
}
