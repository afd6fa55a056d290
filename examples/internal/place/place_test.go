package place

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestMalformedTellsNoPassword(t *testing.T) {
	const secret = "s3cret"
	for _, rawURL := range []string{
		"http://:s3cret@host:6379",
		"redis://:s3cret@host:6379/zero",
		"redis://s3cret@host:6379/zero",
		"redis://:pa/s3cret@host:6379",
		"redis://pa/s3cret@host:6379",
		"redis://:pa#s3cret@host:6379",
		"redis://:pa?s3cret@host:6379",
		"redis://:s3cret%zz@host:6379",
		"redis://host:6379?password=s3cret",
		"redis://:s3cret@host:port",
		"user:s3cret@host:6379",
		"s3cret@host:6379",
		"s3cret",
	} {
		_, err := Dial(t.Context(), rawURL)
		if err == nil {
			t.Errorf("%s: have no error", rawURL)
			continue
		}
		if text := err.Error(); strings.Contains(text, secret) || strings.Contains(text, "\n") {
			t.Errorf("%s: want one line without the password, have %q", rawURL, text)
		}
	}
}

// Whatever is wrong with a URL, its error is one line and tells no password.
func FuzzURL(f *testing.F) {
	for _, rawURL := range []string{"redis://:%s@host:6379/x", "http://u:%s@h", "redis://%s@h/?a=b", "%s", "redis://h/%s@", "::%s@"} {
		f.Add(rawURL)
	}
	f.Fuzz(func(t *testing.T, form string) {
		const secret = "s3cretw0rd"
		rawURL := strings.ReplaceAll(form, "%s", secret)
		if _, err := redis.ParseURL(rawURL); err == nil {
			return // a good one is dialled
		} else if text := malformed(rawURL, err).Error(); strings.Contains(form, ":%s@") && strings.Contains(text, secret) || strings.Contains(text, "\n") {
			t.Errorf("%q: %q", rawURL, text)
		}
	})
}

func TestUnreachableTellsNoPassword(t *testing.T) {
	_, err := Dial(t.Context(), "redis://:s3cret@127.0.0.1:1/2")
	if err == nil {
		t.Fatal("have no error")
	}
	text := err.Error()
	if strings.Contains(text, "s3cret") || !strings.Contains(text, "redis://127.0.0.1:1/2") {
		t.Errorf("want the address without the password, have %q", text)
	}
}

func TestOpenWithoutURL(t *testing.T) {
	p, err := Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if p.Shared() || p.Name != Memory {
		t.Errorf("want %s of this process, have %s, shared %t", Memory, p.Name, p.Shared())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
