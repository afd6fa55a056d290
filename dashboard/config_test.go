package dashboard

import (
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		config         Config
		glob           string
		every, timeout time.Duration
	}{
		{Config{}, "*", time.Second, time.Second},
		{Config{Every: -1, Timeout: -1}, "*", time.Second, time.Second},
		{Config{Glob: "a*", Every: time.Millisecond, Timeout: time.Minute}, "a*", 100 * time.Millisecond, time.Minute},
	} {
		have := c.config.withDefaults()
		if have.Glob != c.glob || have.Every != c.every || have.Timeout != c.timeout {
			t.Errorf("%+v: have %q, %v, %v", c, have.Glob, have.Every, have.Timeout)
		}
	}
}
