//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// Mistakes about TLS should end with a message that gives advice, at once, without retries.
func TestMistakesAboutTLS(t *testing.T) {
	t.Parallel()
	server, _ := redistest.StartTLS(t)
	for _, c := range []struct {
		name, url string
		want      []string
	}{
		{"an untrusted certificate", "rediss://" + server.TLSAddr(), []string{"is not trusted", "ca=FILE"}},
		{"a certificate for another name", "rediss://" + server.TLSAddr() + "?server_name=other.example&ca=" + server.CAFile(), []string{"for another name", "server_name=NAME"}},
		{"without TLS to a port with TLS", "redis://" + server.TLSAddr(), []string{"speaks TLS, and the client does not: use rediss://"}},
		{"with TLS to a port without TLS", "rediss://" + server.Addr(), []string{"does not speak TLS, and the client does: use redis://"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, c.url, "run", "-n", "job", "--", "true")
			p.Env = append(p.Env, "DIBS_TIMEOUT=30s")
			start := time.Now()
			p.begin()
			p.wantCode(125)
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("ends after %v, so it was retried", took)
			}
			for _, want := range c.want {
				if !strings.Contains(p.stderr.String(), want) {
					t.Errorf("prints %q, want %q in it", p.stderr.String(), want)
				}
			}
		})
	}
}
