package directive

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// show returns a directive's parts, as Go code where they are code.
func show(d *Directive) string {
	parts := []string{string(d.Kind)}
	for _, name := range d.Names {
		parts = append(parts, fmt.Sprintf("%s@%d", name.Text, name.Offset))
	}
	if d.Spread {
		parts = append(parts, "...")
	}
	if d.Kind == Permits {
		parts = append(parts, fmt.Sprintf("%s@%d", d.Count.Text, d.Count.Offset))
	}
	if d.Kind == Once {
		parts = append(parts, DurationCode(d.Interval, "time"))
	}
	for _, o := range d.Options {
		parts = append(parts, o.Code("dibs", "time"))
	}
	return strings.Join(parts, " | ")
}

func TestParse(t *testing.T) {
	for comment, want := range map[string]string{
		`//dibs:lock "order:"+o.ID wait=3s`:              `lock | "order:"+o.ID@12 | dibs.Wait(3 * time.Second)`,
		`//dibs:lock "a:"+from, "a:"+to wait=0s // both`: `lock | "a:"+from@12 | "a:"+to@23 | dibs.Wait(0)`,
		`//dibs:lock ids... ttl=90m norenew`:             `lock | ids@12 | ... | dibs.TTL(90 * time.Minute) | dibs.NoRenew()`,
		`//dibs:lock names(a, b)...`:                     `lock | names(a, b)@12 | ...`,
		`//dibs:lock []string{a, "b wait=3s"}...`:        `lock | []string{a, "b wait=3s"}@12 | ...`,
		`//dibs:lock map[string]string{"a": b}[c] + d`:   `lock | map[string]string{"a": b}[c] + d@12`,
		"//dibs:lock `a b`+fmt.Sprint(x.(int), y[1:2])":  "lock | `a b`+fmt.Sprint(x.(int), y[1:2])@12",
		`//dibs:lock (a) // wait=3s`:                     `lock | (a)@12`,
		`//dibs:lock name[T](x) label=a//b`:              `lock | name[T](x)@12 | dibs.Label("a//b")`,
		`//dibs:lock   <-*p   minhold=1500ms`:            `lock | <-*p@14 | dibs.MinHold(1500 * time.Millisecond)`,
		`//dibs:read "catalogue" attempts=5/200ms`:       `read | "catalogue"@12 | dibs.Attempts(5, 200 * time.Millisecond)`,
		`//dibs:write "catalogue" maxhold=1h`:            `write | "catalogue"@13 | dibs.MaxHold(time.Hour)`,
		`//dibs:permits "partner" 4 wait=1m`:             `permits | "partner"@15 | 4@25 | dibs.Wait(time.Minute)`,
		`//dibs:permits "partner" limits.Partner`:        `permits | "partner"@15 | limits.Partner@25`,
		`//dibs:once "report:daily" 1h maxhold=2h`:       `once | "report:daily"@12 | time.Hour | dibs.MaxHold(2 * time.Hour)`,
		`//dibs:once "report:monthly" 700h retryfailed`:  `once | "report:monthly"@12 | 700 * time.Hour | dibs.RetryFailed()`,
		`//dibs:lock o.ID reentrant timeout=1500us`:      `lock | o.ID@12 | dibs.Reentrant() | dibs.Timeout(1500 * time.Microsecond)`,
	} {
		d, err := Parse(comment)
		if err != nil {
			t.Errorf("%s: %v", comment, err)
			continue
		}
		if have := show(d); have != want {
			t.Errorf("%s:\nwant %s\nhave %s", comment, want, have)
		}
	}
}

func TestOtherComments(t *testing.T) {
	for _, comment := range []string{
		"// dibs: a lock", "// dibs:meta is a key", "//go:generate dibs", "// lock", "//", "/* dibs */", "//\tdibs:lock \"a\"",
		"// dibs:locks are names", "//dibsvet:ignore",
	} {
		if d, err := Parse(comment); d != nil || err != nil {
			t.Errorf("%s: want neither a directive nor an error, have %v, %v", comment, d, err)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for comment, want := range map[string]string{
		`//dibs:lok "a"`:                                      `0: //dibs:lok: unknown directive; want lock, read`,
		`//dibs:Lock "a"`:                                     `0: not a directive`,
		`//Dibs:lock "a"`:                                     `0: not a directive`,
		`//dibs: lock "a"`:                                    `0: not a directive`,
		`// dibs:lock "a"`:                                    `0: not a directive`,
		`//  dibs: lock "a"`:                                  `0: not a directive`,
		`/*dibs:lock "a"*/`:                                   `0: not a directive`,
		`//dibs:lock`:                                         `11: the name is missing`,
		`//dibs:lock "a", wait=3s`:                            `17: option "wait" stands where a name is expected`,
		`//dibs:lock wait=3s`:                                 `12: option "wait" stands`,
		`//dibs:lock "a" = "b"`:                               `16: unexpected = in the names`,
		`//dibs:lock "a",, "b"`:                               `16: the name is missing`,
		`//dibs:lock "a" wiat=3s`:                             `16: option "wiat": unknown; want ttl, wait, timeout`,
		`//dibs:lock "a" o.ID`:                                `16: option "o.ID": unknown`,
		`//dibs:lock "a"o.ID`:                                 `15: unexpected "o.ID" after a name; join the parts of a name with +`,
		`//dibs:lock "a" wait=3`:                              `16: option "wait": want a duration`,
		`//dibs:lock "a" wait=1s attempts=3/1s`:               `16: Wait and Attempts`,
		`//dibs:lock "a" wait=1s wait=2s`:                     `16: option "wait" is given twice`,
		`//dibs:lock "a" ttl=1ms`:                             `16: TTL 1ms`,
		`//dibs:lock "a`:                                      `12: string literal not terminated`,
		`//dibs:lock f(a wait=3s`:                             `23: missing ) in the names`,
		`//dibs:lock f(a]`:                                    `15: unexpected ] in the names`,
		`//dibs:lock a)`:                                      `13: unexpected ) in the names`,
		`//dibs:lock "a"+`:                                    `16: expected operand`,
		`//dibs:lock a; b`:                                    `13: unexpected ; in the names`,
		`//dibs:lock func() string { return "a" }()`:          `12: a function literal in a name`,
		`//dibs:lock f(func() string { return "a" })`:         `14: a function literal in a name`,
		`//dibs:lock "a", ids...`:                             `12: //dibs:lock: a list with ... must be the only name`,
		`//dibs:lock ids..., "a"`:                             `18: unexpected , after ...`,
		`//dibs:read ids...`:                                  `12: //dibs:read: several names`,
		`//dibs:write "a", "b"`:                               `13: //dibs:write: several names`,
		`//dibs:permits "a"`:                                  `18: //dibs:permits: the number of permits is missing`,
		`//dibs:permits "a" wait=3s`:                          `19: //dibs:permits: the number of permits is missing`,
		`//dibs:permits "a" norenew`:                          `19: //dibs:permits: the number of permits is missing`,
		`//dibs:permits "a" 4, 5`:                             `19: //dibs:permits: want one number`,
		`//dibs:once "a"`:                                     `15: //dibs:once: want an interval such as 50m after the name`,
		`//dibs:once "a" hourly`:                              `16: //dibs:once: want an interval`,
		`//dibs:once "a" 1ms`:                                 `16: //dibs:once: interval 1ms of Once "…": not within 10ms to 8784h0m0s`,
		`//dibs:once "a" 1h minhold=1h`:                       `19: MinHold given to Do of the periodic job`,
		`//dibs:lock "a" retryfailed`:                         `16: RetryFailed given to`,
		`//dibs:once "a" 1h wait=3s`:                          `19: Wait given to Do of the periodic job "…": it does not wait; give it to Lock or Do of another lock`,
		`//dibs:once "a" 1h maxhold=1m`:                       `18: MaxHold 1m0s of "…": below its interval 1h0m0s`,
		`//dibs:lock "a" token=x`:                             `16: option "token": unknown`,
		`//dibs:lock "\q"`:                                    `14: unknown escape`,
		"//dibs:lock \"a\" label=" + strings.Repeat("x", 129): `16: Label: want`,
	} {
		d, err := Parse(comment)
		failed, ok := errors.AsType[Errors](err)
		if !ok || d != nil {
			t.Errorf("%s: want an error, have %v, %v", comment, d, err)
			continue
		}
		if have := fmt.Sprintf("%d: %v", failed[0].Offset, err); !strings.HasPrefix(have, want) {
			t.Errorf("%s:\nwant %s\nhave %s", comment, want, have)
		}
	}
}

func TestParseReturnsAllErrors(t *testing.T) {
	for comment, want := range map[string][]int{
		`//dibs:lock "a" ttl=1ms wait=3 label=two/words`:     {16, 24},
		`//dibs:lock "a" ttl=1ms wiat=3s`:                    {16, 24},
		`//dibs:read "a", "b" ttl=1ms`:                       {12, 21},
		`//dibs:once "a" hourly wait=3s ttl=1ms`:             {16, 23, 31},
		`//dibs:once "a" wait=3s attempts=3/1s`:              {16, 16, 24},
		`//dibs:permits "a" wait=3 ttl=1ms`:                  {19, 19, 26},
		`//dibs:lock "a" wait=1s attempts=2/1s ttl=1ms // c`: {38, 16},
	} {
		_, err := Parse(comment)
		failed, _ := errors.AsType[Errors](err)
		var have []int
		for _, one := range failed {
			have = append(have, one.Offset)
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: want errors at %v, have %v: %v", comment, want, have, err)
		}
	}
}

// A word that ParseOptions accepts and this package does not find would be a part of the name.
func TestEveryWordOfParseOptionsIsAnOption(t *testing.T) {
	_, err := dibs.ParseOptions("nothing")
	_, list, ok := strings.Cut(fmt.Sprint(err), "want ")
	if !ok {
		t.Fatalf("no list of words in %q", err)
	}
	words := regexp.MustCompile(`,? or |, `).Split(list, -1)
	for _, key := range words {
		if !isOption(key) || !isOption(key+"=bad") {
			t.Errorf("%q is not found", key)
		}
	}
	if len(words) < 2 || isOption("wiat=3s") || isOption("") {
		t.Errorf("words %q", words)
	}
}

func TestDurationCode(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", time.Hour: "time.Hour", 36 * time.Hour: "36 * time.Hour", time.Minute + time.Second: "61 * time.Second",
		7: "7 * time.Nanosecond", 1: "time.Nanosecond", -time.Second: "-1 * time.Second",
	} {
		if have := DurationCode(d, "time"); have != want {
			t.Errorf("%v: want %s, have %s", d, want, have)
		}
	}
}

// FuzzParse requires that no text makes Parse panic. An error is within the comment, and String
// returns a comment with the same meaning.
func FuzzParse(f *testing.F) {
	for _, comment := range []string{
		`//dibs:lock "order:"+o.ID wait=3s`, `//dibs:lock "a:"+from, "a:"+to // both`, `//dibs:lock []string{a}... ttl=20s`,
		`//dibs:read "c" attempts=5/200ms`, `//dibs:permits "p" 4 label=web`, `//dibs:once "r" 1h30m maxhold=2h norenew`,
		"//dibs:lock `a\tb`+fmt.Sprint(x.(int)) /* c */ reentrant", `// dibs:lock x`, `//dibs:lock f(`, `//dibs:lock a[1:2]{"b": c}`,
	} {
		f.Add(comment)
	}
	f.Fuzz(func(t *testing.T, comment string) {
		d, err := Parse(comment)
		failed, ok := errors.AsType[Errors](err)
		switch {
		case ok:
			for _, one := range failed {
				if one.Offset < 0 || one.Offset > len(comment) || one.Text == "" {
					t.Errorf("%q: error %q at %d", comment, one.Text, one.Offset)
				}
			}
			return
		case err != nil:
			t.Errorf("%q: %T, want Errors", comment, err)
			return
		case d == nil:
			return
		}
		again, err := Parse(d.String())
		if err != nil {
			t.Fatalf("%q is accepted, and %q is not: %v", comment, d, err)
		}
		if !reflect.DeepEqual(withoutOffsets(d), withoutOffsets(again)) || again.String() != d.String() {
			t.Errorf("%q:\nfirst %#v\nagain %#v", comment, d, again)
		}
	})
}

func withoutOffsets(d *Directive) Directive {
	plain := *d
	plain.Names = slices.Clone(d.Names)
	for i := range plain.Names {
		plain.Names[i].Offset = 0
	}
	plain.Count.Offset = 0
	return plain
}
