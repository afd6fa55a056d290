//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// Mistakes about a proxy must end with a message that gives advice.
func TestMistakesAboutAProxy(t *testing.T) {
	t.Parallel()
	proxy := "redis://" + redistest.StartTwemproxy(t, "{}", redistest.Start(t), redistest.Start(t))
	for _, c := range []struct {
		name, url string
		args      []string
		code      int
		want      string
	}{
		{"run without proxy=true", proxy, []string{"run", "-n", "job", "--", "true"}, 125, "proxy=true in the URL"},
		{"doctor without proxy=true", proxy, []string{"doctor"}, 125, "proxy=true in a URL"},
		{"ls", proxy + "?proxy=true", []string{"ls"}, 64, "without Proxy"},
		{"doctor with an option that cannot be used", proxy + "?proxy=true", []string{"doctor", "--redisson"}, 64, "Proxy cannot be used with Redisson"},
		{"run", proxy + "?proxy=true", []string{"run", "-n", "job", "--", "true"}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, c.url, c.args...)
			p.begin()
			p.wantCode(c.code)
			if printed := p.stdout.String() + p.stderr.String(); !strings.Contains(printed, c.want) {
				t.Errorf("prints %q, want %q in it", printed, c.want)
			}
		})
	}
}
