package exstore

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
)

func TestMalformedURLShowsNoPassword(t *testing.T) {
	for _, rawURL := range []string{"http://:s3cret@host:6379", "redis://:pa/s3cret@host:6379", "redis://s3cret@host:6379"} {
		_, _, err := Dial(t.Context(), rawURL)
		if err == nil {
			t.Errorf("%s: want an error", rawURL)
			continue
		}
		if text := err.Error(); strings.Contains(text, "s3cret") || strings.Contains(text, "\n") || !strings.Contains(text, "DIBS_URL") {
			t.Errorf("%s: want one line about DIBS_URL without the password, have %q", rawURL, text)
		}
	}
}

func TestUnreachableServerShowsNoPassword(t *testing.T) {
	for rawURL, where := range map[string]string{
		"redis://:s3cret@127.0.0.1:1/2":                                                  "redis://127.0.0.1:1/2",
		"unix://:s3cret@/nowhere/redis.sock":                                             "unix:///nowhere/redis.sock?db=0",
		"redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2":                                "redis+cluster://127.0.0.1:1,127.0.0.1:2",
		"redis+sentinel://:s3cret@127.0.0.1:1,127.0.0.1:2/main?sentinel_password=s3cret": "redis+sentinel://127.0.0.1:1,127.0.0.1:2/main/0",
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			_, _, err := Dial(t.Context(), rawURL)
			if err == nil {
				t.Fatal("want an error")
			}
			if text := err.Error(); strings.Contains(text, "s3cret") || strings.Contains(text, "\n") || !strings.Contains(text, where) {
				t.Errorf("want one line with %s and without the password, have %q", where, text)
			}
		})
	}
}

func TestCredentialsInTheEnvironment(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "s3cret")
	t.Setenv("DIBS_PASSWORD", "s3cret")
	p, err := Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if want := s.URL() + "/0"; p.Description != want || !p.Shared() {
		t.Errorf("want %s and shared, have %s, %t", want, p.Description, p.Shared())
	}
}

func TestOpenOnCluster(t *testing.T) {
	s := redistest.StartClusterNode(t)
	p, err := Open(t.Context(), "redis+cluster://"+s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	locks := dibs.New(p)
	defer locks.Close()
	lease, err := locks.Mutex("job").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestOpenWithoutURL(t *testing.T) {
	p, err := Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if p.Shared() || p.Description != Memory {
		t.Errorf("want %s of this process, have %s, shared %t", Memory, p.Description, p.Shared())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
