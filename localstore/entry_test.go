//go:build unix

package localstore

import (
	"bytes"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// An entry should be decoded and encoded without change.
func TestEntry(t *testing.T) {
	t.Parallel()
	want := `{"h":[{"t":"a","c":"c","w":2,"f":7,"x":60000000000}],"q":[{"t":"b","c":"d","w":1,"l":1,"d":5000000000,"s":true,"n":9,"j":1,"x":2}]}`
	e, err := decode([]byte(want))
	must(t, err)
	text, err := encode(e)
	must(t, err)
	if string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// A decoded entry should be usable, and encoding should restore its text.
func FuzzEntry(f *testing.F) {
	for _, seed := range []string{
		`{"h":[{"t":"a","c":"c","w":1,"a":true,"f":7,"x":60000000000}]}`,
		`{"h":[{"t":"a","c":"c","w":2,"f":7,"x":1}],"q":[{"t":"b","c":"d","w":1,"l":2147483647,"d":5000000000,"n":9,"j":1,"x":2}]}`,
		`{"q":[{"t":"b","c":"d","w":1,"l":1,"d":1,"s":true,"n":9,"j":1,"x":9223372036854775807}]}`,
		`{}`, `null`, `[]`, ``, `{"h":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := decode(text)
		if err != nil {
			return
		}
		once, err := encode(e)
		must(t, err)
		again, err := decode(once)
		must(t, err)
		twice, err := encode(again)
		must(t, err)
		if !bytes.Equal(once, twice) {
			t.Fatalf("%s, then %s", once, twice)
		}
		work(t, again)
	})
}

// work runs each operation on an entry.
func work(t *testing.T, e *kvstore.Lock) {
	t.Helper()
	l := kvstore.NewTable()
	l.Names["n"] = e
	now := kvstore.Now{At: time.Minute, Wall: time.Now()}
	r := requestOn("n", "me")
	l.Acquire(r, now)
	l.Inspect("n", now)
	l.Resize(r, now)
	l.Extend([]driver.ExtendRequest{{Name: "n", Token: "a", TTL: time.Minute}}, now)
	l.Release(driver.ReleaseRequest{Name: "n", Token: "a", Reserve: time.Second}, now)
	l.Revoke(driver.RevokeRequest{Name: "n", Fence: 7}, now)
	l.Cancel(r, now)
	for _, e := range l.Names {
		text, err := encode(e)
		must(t, err)
		if _, err := decode(text); err != nil {
			t.Fatalf("the encoded result cannot be decoded: %v: %s", err, text)
		}
	}
}

// A datagram from any sender is only a hint.
func FuzzNotes(f *testing.F) {
	f.Add([]byte(`[{"k":1,"t":"a","f":7,"n":9}]`))
	f.Add([]byte(`[{"k":4}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range decodeEvents(text) {
			known := e.Kind == driver.EventGranted || e.Kind == driver.EventRetry || e.Kind == driver.EventRevoked || e.Kind == driver.EventWanted
			if !known || e.Err != nil {
				t.Errorf("%+v", e)
			}
		}
	})
}
