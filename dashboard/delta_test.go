package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// patched applies a delta like page.js.
func patched(t *testing.T, old string, encoded []byte) string {
	t.Helper()
	var steps []any
	if err := json.Unmarshal(encoded, &steps); err != nil {
		t.Fatal(err)
	}
	from, at := utf16.Encode([]rune(old)), 0
	var text []uint16
	for i := 0; i < len(steps); i += 3 {
		skip, length := int(steps[i].(float64)), int(steps[i+1].(float64))
		at += skip
		text = append(text, from[at:at+length]...)
		text = append(text, utf16.Encode([]rune(steps[i+2].(string)))...)
		at += length
	}
	return string(utf16.Decode(text))
}

// A delta makes the new text, whatever changed.
func TestDeltaOfRandomTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	row := func() string {
		const rows, values = 8, 3
		n := random.IntN(rows)
		text := fmt.Sprintf("<tr><td><a href=\"name?n=%d\">%s</a></td><td>%d s</td>", n, strings.Repeat("ä𝄞<", n), random.IntN(values))
		if random.IntN(values) == 0 {
			text += "<td>more</td>"
		}
		return text + "</tr>\n"
	}
	text := func() (all string) {
		for range random.IntN(12) {
			all += row()
		}
		return all + []string{"", "\n", "end"}[random.IntN(3)]
	}
	for range 2000 {
		old, now := text(), text()
		steps, err := deltaOf(old, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(steps) > 0 && string(steps) != "null" {
			if have := patched(t, old, steps); have != now {
				t.Fatalf("from %q\nwant %q\nhave %q\nby   %s", old, now, have, steps)
			}
		} else if now != "" {
			t.Fatalf("no steps for %q", now)
		}
	}
}

// A row that moves, or is new, must not send the other rows again.
func TestDeltaOfAMovedRow(t *testing.T) {
	var rows []string
	for i := range 100 {
		rows = append(rows, fmt.Sprintf("<tr><td><a href=\"name?n=%d\">the name of a lock %d</a></td></tr>\n", i, i))
	}
	old := strings.Join(rows, "")
	now := rows[50] + "<tr>new</tr>\n" + strings.Join(rows[:50], "") + strings.Join(rows[51:], "")
	steps, err := deltaOf(old, now)
	if err != nil || patched(t, old, steps) != now || len(steps) > 100 {
		t.Errorf("%d bytes: %s, %v", len(steps), steps, err)
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "gzip, deflate, br": true, "br;q=1.0, gzip;q=0.8": true, "gzip;q=0": false, "gzip; q=0.0": false, "identity": false, "xgzip": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", header)
		if have := acceptsGzip(r); have != want {
			t.Errorf("%q: %v", header, have)
		}
	}
}

// openZipped opens a compressed stream.
func openZipped(ctx context.Context, h http.Handler, link string) (s *sink, wait func()) {
	s, done := newSink(), make(chan struct{})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+link, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	go func() {
		defer close(done)
		h.ServeHTTP(s, r)
	}()
	return s, func() { <-done }
}

// unzipped returns the text in a compressed stream, which has no end.
func unzipped(t *testing.T, stream string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := io.Copy(&text, r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return text.String()
}

// renewed renews a store's leases like their holders: after a third of their TTL.
func renewed(t *testing.T, s driver.Store, names []string, second int) {
	t.Helper()
	const every = 10
	for i := range names {
		if i*31/7%every != second%every {
			continue
		}
		r := driver.ExtendRequest{Name: names[i], Token: tokenOf("web-7", i, driver.KindMutex, 1, ""), Client: "client", TTL: 30 * time.Second}
		if errs := s.Extend(t.Context(), []driver.ExtendRequest{r}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
}

// With many renewed leases, a page should send at most 5 kB a second to each browser. All should
// get the same as a stream without compression.
func TestBytesOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprintf("order:%d", i*7919%100000))
			acquire(t, store, names[i], tokenOf("web-7", i, driver.KindMutex, 1, ""))
			time.Sleep(time.Duration(i*7919%50) * time.Millisecond)
		}
		h := New(store, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		plain, waitPlain := open(ctx, h, "events?view=list")
		zipped, waitZipped := openZipped(ctx, h, "events?view=list")
		synctest.Wait()
		first := len(zipped.text())
		const seconds = 12
		for second := range seconds {
			renewed(t, store, names, second)
			time.Sleep(time.Second)
		}
		late, waitLate := openZipped(ctx, h, "events?view=list")
		time.Sleep(time.Second)
		cancel()
		waitPlain()
		waitZipped()
		waitLate()
		const most = 5000
		all := plain.text()
		each := (len(zipped.text()) - first) / (seconds + 1)
		t.Logf("first event %d bytes, then %d a second; without compression %d, with whole fragments %d", first, each, len(all)/(seconds+2), strings.Index(all, "\n\n"))
		if each > most {
			t.Errorf("%d bytes a second, want at most %d", each, most)
		}
		if unzipped(t, zipped.text()) != all {
			t.Error("the compressed stream has other events")
		}
		if shown(t, all) != shown(t, unzipped(t, late.text())) {
			t.Error("a page that was updated by events differs from a page that was just opened")
		}
	})
}

// shown returns the fragment after all events in a stream.
func shown(t *testing.T, stream string) (html string) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		lines := strings.Split(event, "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "data: ")
		}
		data := strings.Join(lines[1:], "\n")
		switch lines[0] {
		case "event: update":
			html = data
		case "event: delta":
			html = patched(t, html, []byte(data))
		}
	}
	return html
}

// An event is encoded once for all streams with the same view.
func TestEventsAreShared(t *testing.T) {
	old, now := newFragment([]byte("<p>a</p>")), newFragment([]byte("<p>b</p>"))
	first, second := now.event(old, true), now.event(old, true)
	if &first[0] != &second[0] {
		t.Error("the event was encoded twice")
	}
	for range 2 * maxEvents {
		now.event(newFragment([]byte("<p>c</p>")), true)
	}
	if len(now.events.kept) > maxEvents || !slices.Equal(first, now.event(old, true)) {
		t.Errorf("%d events are kept", len(now.events.kept))
	}
}
