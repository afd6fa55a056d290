package dibs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// Printing or logging a handle does not let the reader act as the owner.
func TestHandleIsPrintedWithoutItsToken(t *testing.T) {
	handle := dibs.NewHandle("order:42", "secret-of-the-owner")
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("held", "lease", handle)
	for what, text := range map[string]string{
		"%v": fmt.Sprint(handle), "%+v": fmt.Sprintf("%+v", handle), "%#v": fmt.Sprintf("%#v", handle), "%q": fmt.Sprintf("%q", handle),
		"inside": fmt.Sprintf("%+v", struct{ Handle dibs.Handle }{handle}), "slog": log.String(),
	} {
		if strings.Contains(text, "secret-of-the-owner") || !strings.Contains(text, "order:42") {
			t.Errorf("%s: %s, want the name without the token", what, text)
		}
	}
	if have := new(dibs.Handle).String(); have != "no lease" {
		t.Errorf("the zero Handle is %q", have)
	}
}

// A handle's text is complete, whatever the names are.
func TestHandleAsText(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, there := open(t, s), open(t, s)
		odd := []string{"n", "two words", "a\nb", `"quoted" \ 7:"n"`, "ü, 🔒"}
		for _, names := range append([][]string{odd}, []string{"n"}, []string{"a b:\" "}) {
			l, err := c.All(names).Lock(t.Context())
			wantErr(t, err)
			text, err := json.Marshal(l.Handle())
			wantErr(t, err)
			var handle dibs.Handle
			wantErr(t, json.Unmarshal(text, &handle))
			attached, err := there.Attach(t.Context(), handle)
			wantErr(t, err)
			for _, name := range names {
				if have, want := attached.FenceOf(name), l.FenceOf(name); have != want || want == 0 {
					t.Errorf("fence %d of %q, want %d", have, name, want)
				}
			}
			wantErr(t, l.Detach())
			wantBusy(t, s, names...)
			wantErr(t, attached.Unlock())
			wantNothing(t, s, names...)
		}
		var zero dibs.Handle
		if text, err := zero.MarshalText(); len(text) > 0 || err != nil || zero.UnmarshalText(text) != nil {
			t.Errorf("text %q of the zero Handle, %v", text, err)
		}
	})
}

func TestBadHandleText(t *testing.T) {
	for _, text := range []string{
		" ", "token", "token ", "token 7", "token 7:", "token 7:n", `token 7:"n`, `token 7:"n" `, `token 7:"n"x`, `token -7:"n"`, `token :"n"`,
		`token 7:""`, ` 7:"n"`, `token 7:"n" 8:"n"`, `token 7:"n" 8`, "to\tken 7:\"n\"", `token 99999999999999999999:"n"`, `token 7:"\xff"`,
		"token 7:\"" + strings.Repeat("n", 2000) + `"`, strings.Repeat("t", 257) + ` 7:"n"`,
	} {
		handle := dibs.NewHandle("before", "token")
		if err := handle.UnmarshalText([]byte(text)); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(handle.String(), "before") {
			t.Errorf("%q: %v, and then %v; want ErrInvalid, and the handle as before", text, err, handle)
		}
	}
	if _, err := dibs.NewHandle("", "token").MarshalText(); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("no name: %v, want ErrInvalid", err)
	}
}

func FuzzHandle(f *testing.F) {
	f.Add([]byte(`web-7:211:abc 1763788260123456:"order:42" 7:"a b"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var handle, again dibs.Handle
		if handle.UnmarshalText(text) != nil {
			return
		}
		written, err := handle.MarshalText()
		wantErr(t, err)
		wantErr(t, again.UnmarshalText(written))
		if twice, _ := again.MarshalText(); !bytes.Equal(written, twice) {
			t.Errorf("%q is written as %q, and then as %q", text, written, twice)
		}
	})
}
