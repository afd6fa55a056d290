package exstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
)

// wantOpen opens a URL's store, which is shared and has a description, and locks a name.
func wantOpen(t *testing.T, rawURL, want string) {
	t.Helper()
	p, err := Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	if p.Description != want || !p.Shared() {
		t.Errorf("want %s and shared, have %s, %t", want, p.Description, p.Shared())
	}
	locks := dibs.New(p)
	lease, err := locks.Mutex("job").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Unlock(), locks.Close(), p.Close()); err != nil {
		t.Error(err)
	}
}

// wantNoPassword opens URLs that fail. The error should be a single line with a text, and no
// password.
func wantNoPassword(t *testing.T, texts map[string]string) {
	t.Helper()
	for rawURL, want := range texts {
		_, err := Open(t.Context(), rawURL)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: want one line with %s, without the password, have %v", rawURL, want, err)
		}
	}
}
