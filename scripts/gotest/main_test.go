package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module is a module whose tests count their runs in files.
var module = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.26\n",
	"count/count.go": `package count

import "os"

// Run counts a run of a test, and returns how many there were.
func Run(file string) int {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	f.WriteString("x")
	state, _ := f.Stat()
	return int(state.Size())
}
`,
	"a/a_test.go": `package a

import (
	"testing"

	"example.org/m/count"
)

func TestPasses(t *testing.T) { t.Log("a log that nobody reads"); count.Run("passes") }

func TestParallel(t *testing.T) { t.Parallel() }

func TestFailsOnce(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		if count.Run("once") < 2 {
			t.Error("too slow")
		}
	})
}

func TestFailsTwice(t *testing.T) {
	if count.Run("twice") < 3 {
		t.Error("too slow")
	}
}
`,
	"b/b_test.go": `package b

import (
	"testing"

	"example.org/m/count"
)

func TestAlways(t *testing.T) { count.Run("always"); t.Error("too slow") }
`,
	"c/c_test.go": `package c

import (
	"testing"

	"example.org/m/count"
)

func TestSafety(t *testing.T) {
	if count.Run("safety") < 2 {
		t.Error("12 conflicts")
	}
}
`,
	"d/d_test.go": "package d\n\nimport \"testing\"\n\nfunc TestCompiles(t *testing.T) { none() }\n",
	"e/e_test.go": `package e

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { m.Run(); os.Exit(1) }

func TestPasses(t *testing.T) {}
`,
	"g/g_test.go": `package g

import (
	"fmt"
	"os"
	"testing"
)

func TestEnds(t *testing.T) {
	fmt.Println("its goroutines")
	os.Exit(3)
}
`,
	"f/f_test.go": `package f

import (
	"testing"

	"example.org/m/count"
)

func TestPanics(t *testing.T) {
	if count.Run("panics") < 2 {
		panic("once")
	}
}
`,
}

// write writes the module.
func write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range module {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Only a failure during a stall runs again, and only until it passes or has run 8 times.
func TestGotest(t *testing.T) {
	t.Parallel()
	stalled := func(from, to time.Time) time.Duration {
		if from.IsZero() || to.Before(from) {
			return 0
		}
		return time.Second
	}
	quiet := func(time.Time, time.Time) time.Duration { return excused - 1 }
	for _, test := range []struct {
		pkg  string
		lost func(from, to time.Time) time.Duration
		ok   bool
		runs map[string]int // by file
		out  string
	}{
		{"a", stalled, true, map[string]int{"passes": 1, "once": 2, "twice": 3}, "Run 3 of 8"},
		{"a", quiet, false, map[string]int{"passes": 1, "once": 1, "twice": 1}, "FOR GOOD: example.org/m/a TestFailsOnce: the machine lost 25ms at most"},
		{"b", stalled, false, map[string]int{"always": 8}, "FOR GOOD: example.org/m/b TestAlways failed whenever"},
		{"c", stalled, false, map[string]int{"safety": 1}, "FOR GOOD: example.org/m/c TestSafety: c_test.go:11: 12 conflicts"},
		{"d", stalled, false, nil, "FOR GOOD: example.org/m/d did not compile"},
		{"e", stalled, false, nil, "FOR GOOD: example.org/m/e did not compile, or ended early"},
		{"g", stalled, false, nil, "TestEnds did not end. Its output:\nits goroutines\n"},
		{"f", stalled, false, map[string]int{"panics": 1}, "TestPanics: panic: once"},
	} {
		t.Run(test.pkg, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir)
			var out bytes.Buffer
			g := gotest{flags: []string{"-parallel", "2"}, lost: test.lost, calm: func() {}, late: func() bool { return false }, out: &out, dir: dir}
			ok, err := g.run("example.org/m/" + test.pkg)
			if err != nil {
				t.Fatal(err)
			}
			if ok != test.ok || !strings.Contains(out.String(), test.out) {
				t.Errorf("passed: %t, want %t, and output with %q:\n%s", ok, test.ok, test.out, out.String())
			}
			if strings.Contains(out.String(), "nobody reads") {
				t.Errorf("the output of a test that passed is printed:\n%s", out.String())
			}
			for file, want := range test.runs {
				text, err := os.ReadFile(filepath.Join(dir, test.pkg, file))
				if err != nil || len(text) != want {
					t.Errorf("%s ran %d times (%v), want %d", file, len(text), err, want)
				}
			}
		})
	}
}

// No run begins when it is too late for one.
func TestLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir)
	var out bytes.Buffer
	stalled := func(time.Time, time.Time) time.Duration { return time.Second }
	g := gotest{flags: []string{"-v"}, lost: stalled, calm: func() {}, late: func() bool { return true }, out: &out, dir: dir}
	if ok, err := g.run("example.org/m/b"); ok || err != nil {
		t.Errorf("passed: %t, %v", ok, err)
	}
	if strings.Contains(out.String(), "Run 2") {
		t.Errorf("a second run:\n%s", out.String())
	}
}

// What a stall may cause is not final, what shows a fault of a lock is.
func TestFinal(t *testing.T) {
	for text, want := range map[string]bool{
		"WARNING: DATA RACE":                true,
		"panic: test timed out after 30m0s": true,
		"FIGURE 2 failovers: 53 locks, 10 conflicts, 0 leases lost, 1 fences decreased": false, // not each failover forbids them
		"FIGURE 9 locks, 1 overlaps\n    a_test.go:7: 1 overlaps":                       true,
		"2 failed, 0 overlaps, 0 fences that did not grow: want none":                   false,
		"0 failed, 0 overlaps, 3 fences that did not grow: want none":                   true,
		`[exclusion on "a": both held at 12]`:                                           true,
		`[limit on "a": 4 of 3 held at 12]`:                                             true,
		`[fences on "a": fence 7 was issued twice]`:                                     true,
		`[lost on "a": lost before its TTL without a revoke]`:                           false,
		"no sequential order of the requests explains the 90 replies":                   true,
		"3 concurrent holders":                                                          true,
		"two leaders: term 7 began 1ms before":                                          true,
		"2 leaders":                                                                     true,
		"fence 7 after 8":                                                               true,
		"a fence did not grow":                                                          true,
		"dibs: lease on \"n\" lost: expired":                                            false,
		"recovery 9s, failover 8s":                                                      false,
	} {
		f := failure{output: text}
		if got := f.final(time.Second); (got != "") != want {
			t.Errorf("%q is final: %q, want %t", text, got, want)
		}
	}
}
