package dibs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func TestParseOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		options, err := dibs.ParseOptions(" ttl=20s wait=3s\tlabel=web timeout=2s minhold=1m maxhold=1h reentrant norenew ")
		wantErr(t, err)
		l := lock(t, open(t, s, options...), "n")
		state, err := s.Inspect(t.Context(), "n")
		wantErr(t, err)
		if h := state.Holders[0]; h.Label != "web" || h.Remaining != time.Minute { // MinHold outlives a crash
			t.Errorf("%+v, want label web for 1m", h)
		}
		wait, err := dibs.ParseOptions("wait=3s")
		wantErr(t, err)
		attempts, err := dibs.ParseOptions("attempts=5/200ms")
		wantErr(t, err)
		for took, options := range map[time.Duration][]dibs.Option{3 * time.Second: wait, 800 * time.Millisecond: attempts} {
			begin := time.Now()
			_, err = open(t, s, options...).Mutex("n").Lock(t.Context())
			if d := time.Since(begin); !errors.Is(err, dibs.ErrBusy) || d != took {
				t.Errorf("%v after %v, want ErrBusy after %v", err, d, took)
			}
		}
		wantErr(t, l.Unlock())
	})
}

func TestParseOptionsRejects(t *testing.T) {
	for text, why := range map[string]string{
		"tll=20s":                           `"tll": unknown; want ttl, wait`,
		"ttl":                               `"ttl": want a duration`,
		"ttl=":                              `want a duration`,
		"ttl=20":                            `want a duration`,
		"ttl=1ms":                           `not within 10ms to 24h0m0s`,
		"ttl=20s wait=1s ttl=30s":           `"ttl" is given twice`,
		"wait=-1s":                          `negative`,
		"wait=1s attempts=3/1s":             `give Wait or Attempts, not both`,
		"attempts=3":                        `want a number and a duration`,
		"attempts=0/1s":                     `less than 1`,
		"attempts=x/1s":                     `want a number and a duration`,
		"cohort=32/1s":                      `unknown`,
		"minhold=1h maxhold=1m":             `below its MinHold`,
		"timeout=1us":                       `below 1ms`,
		"norenew=true":                      `"norenew": takes no value`,
		"label=":                            `empty`,
		"label=a\u00a0b":                    `unknown`, // this is a space as well
		"token=secret":                      `unknown`,
		"=":                                 `unknown`,
		"TTL=20s":                           `unknown`,
		"label=" + strings.Repeat("x", 129): `at most 128 bytes`,
	} {
		options, err := dibs.ParseOptions(text)
		if !errors.Is(err, dibs.ErrInvalid) || err != nil && !strings.Contains(err.Error(), why) || options != nil {
			t.Errorf("%q: %v, %v, want ErrInvalid with %q", text, options, err, why)
		}
	}
	if options, err := dibs.ParseOptions(" \n"); len(options) != 0 || err != nil {
		t.Errorf("empty text: %v, %v", options, err)
	}
}

// No error contains any value but the invalid value: a label may be a secret.
func TestParseOptionsPrintsNoValue(t *testing.T) {
	for _, text := range []string{"wait=-1s", "ttl=1ms", "attempts=0/1s", "minhold=1h maxhold=1m", "label=secret", "token=secret", "ttl=secret", "norenew=secret", "secret", "my secret", "redis://user:secret@host/0?x=1", "secret123=1"} {
		_, err := dibs.ParseOptions("label=secret " + text)
		if !errors.Is(err, dibs.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want ErrInvalid without the label", text, err)
		}
	}
}

func FuzzParseOptions(f *testing.F) {
	f.Add("ttl=20s wait=3s label=web attempts=5/200ms norenew")
	f.Fuzz(func(t *testing.T, text string) {
		options, err := dibs.ParseOptions(text)
		if err != nil {
			if !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
			return
		}
		// A call accepts everything that ParseOptions accepts.
		c := dibs.New(memstore.New(), options...)
		defer c.Close()
		l, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		_ = l.Unlock()
	})
}
