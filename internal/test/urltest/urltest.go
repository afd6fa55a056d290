// Package urltest checks how packages parse the URLs of stores. No error and no text may contain a
// password.
package urltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
)

// WantErrors checks the errors for malformed URLs. wants contains a part of each URL's error. An
// error matches driver.ErrInvalid, and does not contain "s3", with which the passwords begin.
func WantErrors[U any](t *testing.T, parse func(rawURL string) (U, error), wants map[string]string) {
	t.Helper()
	for rawURL, want := range wants {
		_, err := parse(rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: have %v, want ErrInvalid with %s", rawURL, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3") {
			t.Errorf("%s: %v contains the password", rawURL, err)
		}
	}
}

// WantNoPassword checks that errors and texts show no part of a password. A password may have any
// character, escaped or not, before any other mistake. rests are what follows the password in a URL.
// separators are those behind which a URL without a rest contains a host instead of a password.
func WantNoPassword[U fmt.Stringer](t *testing.T, parse func(rawURL string) (U, error), scheme string, separators, rests []string) {
	t.Helper()
	const part = "secret" // letters only, like a parameter's name
	for _, special := range []string{"", "/", "//", "?", "?a=", "#", "@", "%", "%zz", "%0A", "&", "&a=", ":", "[", "]", " ", "\n", ";", "+", "=", "\\", ",", "<", "ö"} {
		for _, rest := range rests {
			if rest == "" && slices.Contains(separators, special) {
				continue
			}
			for _, user := range []string{"ann:", ":"} {
				rawURL := scheme + "://" + user + "pa" + special + part + rest
				if text := shown(parse(rawURL)); strings.Contains(text, part) {
					t.Errorf("%q: %s", rawURL, text)
				}
			}
		}
	}
}

// shown returns the text of a URL, or of the error.
func shown[U fmt.Stringer](u U, err error) string {
	if err != nil {
		return err.Error()
	}
	return u.String()
}

// Fuzz fuzzes URLs with a user and a password. The text of a valid URL is itself valid, and again is
// the URL that it contains. check compares both.
func Fuzz[U fmt.Stringer](f *testing.F, parse func(rawURL string) (U, error), scheme string, rests []string, check func(u, again U) error) {
	for _, rest := range rests {
		f.Add(rest)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		const secret = "s3cretw0rd"
		if strings.Contains(rest, secret) {
			return
		}
		rawURL := scheme + "://ann:" + secret + "@" + rest
		u, err := parse(rawURL)
		if err != nil {
			if text := err.Error(); strings.Contains(text, secret) || !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q: %q", rawURL, text)
			}
			return
		}
		text := u.String()
		if strings.Contains(text, secret) || strings.ContainsAny(text, "\r\n") {
			t.Errorf("%q: %q", rawURL, text)
		}
		again, err := parse(text)
		switch {
		case err != nil:
			t.Errorf("%q: %q: %v", rawURL, text, err)
		case again.String() != text:
			t.Errorf("%q: %q and then %q", rawURL, text, again)
		default:
			if err := check(u, again); err != nil {
				t.Errorf("%q: %q: %v", rawURL, text, err)
			}
		}
	})
}
