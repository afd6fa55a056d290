package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/redistest"
)

// Mistakes about TLS end with a message that says what to do; a certificate that is not trusted
// at once, without retries.
func TestMistakesAboutTLS(t *testing.T) {
	t.Parallel()
	server, _ := redistest.StartTLS(t)
	for _, c := range []struct {
		name, url, timeout string
		within             time.Duration
		want               []string
	}{
		{"an untrusted certificate", "rediss://" + server.TLSAddr(), "30s", 15 * time.Second, []string{"is not trusted", "ca=FILE"}},
		{"a certificate for another name", "rediss://" + server.TLSAddr() + "?server_name=other.example&ca=" + server.CAFile(), "30s", 15 * time.Second, []string{"for another name", "server_name=NAME"}},
		{"without TLS to a port with TLS", "redis://" + server.TLSAddr(), "1s", testTimeout, []string{"rediss://"}},
		{"with TLS to a port without TLS", "rediss://" + server.Addr(), "1s", testTimeout, []string{"rediss:// needs a server with TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, c.url, "run", "-n", "job", "--", "true")
			p.Env = append(p.Env, "DIBS_TIMEOUT="+c.timeout)
			start := time.Now()
			p.begin()
			p.wantCode(125)
			if took := time.Since(start); took > c.within {
				t.Errorf("ends after %v, want %v", took, c.within)
			}
			for _, want := range c.want {
				if !strings.Contains(p.stderr.String(), want) {
					t.Errorf("prints %q, want %q in it", p.stderr.String(), want)
				}
			}
		})
	}
}
