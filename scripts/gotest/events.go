package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Output  string
}

// failure is a test that failed, without its subtests.
type failure struct {
	pkg, test string
	from, to  time.Time
	output    string // its own and that of its subtests
}

// result is what a run of go test reported.
type result struct {
	failed []failure
	broken []string // packages that failed without a failed test
}

// read reads the events of go test -json. It writes to out what go test prints without
// -v: the results of packages, and the output of failed tests.
func read(events io.Reader, out io.Writer) (result, error) {
	var r result
	running := make(map[[2]string]*failure)
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return r, fmt.Errorf("read the events of go test: %w", err)
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(out, "%s", line) // go itself, before there is a test
			continue
		}
		if e.Test == "" {
			if e.Action == "fail" && len(tests(r.failed, e.Package)) == 0 {
				r.broken = append(r.broken, e.Package)
			}
			if e.Action == "fail" {
				printUnfinished(out, running, e.Package)
			}
			if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
			continue
		}
		top, _, isSub := strings.Cut(e.Test, "/")
		key := [2]string{e.Package, top}
		t := running[key]
		if t == nil {
			t = &failure{pkg: e.Package, test: top, from: e.Time}
			running[key] = t
		}
		switch {
		case e.Action == "output" && !isFrame(e.Output):
			t.output += e.Output
		case e.Action == "cont" && !isSub:
			t.from = e.Time // it waited for its turn
		case e.Action == "fail" && !isSub:
			t.to = e.Time
			fmt.Fprint(out, t.output)
			r.failed = append(r.failed, *t)
			delete(running, key)
		case !isSub && (e.Action == "pass" || e.Action == "skip"):
			delete(running, key)
		}
	}
}

// printUnfinished prints the output of the tests of a package that ended before them: one of them
// has the goroutines of a test that hung.
func printUnfinished(out io.Writer, running map[[2]string]*failure, pkg string) {
	for key, t := range running {
		if key[0] == pkg {
			fmt.Fprintf(out, "%s did not end. Its output:\n%s", t.test, t.output)
			delete(running, key)
		}
	}
}

// isFrame reports whether a line says only which test runs.
func isFrame(line string) bool {
	for _, frame := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(line, frame) {
			return true
		}
	}
	return false
}
