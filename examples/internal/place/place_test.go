package place

import (
	"strings"
	"testing"
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
