// Command dibsvet finds mistakes in programs that use package dibs:
//
//	go vet -vettool=$(which dibsvet) ./...
//	dibsvet ./...
//	dibsvet help
//
// docs/dibsvet.md describes each check.
package main

import (
	"flag"
	"fmt"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

func main() {
	all := checks.All(nofenceGiven)
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage(all)) }
	for _, a := range all {
		showName(a)
	}
	multichecker.Main(all...)
}

// showName adds a check's name to its findings: a comment that silences a finding needs it.
func showName(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			d.Message += " (" + a.Name + ")"
			report(d)
		}
		return run(pass)
	}
}

// nofenceGiven reports whether the command line contains -nofence, which runs that check only. The
// checks run after the command line is parsed.
func nofenceGiven() bool {
	given := flag.Lookup("nofence")
	if given == nil {
		return false
	}
	getter, ok := given.Value.(flag.Getter)
	return ok && getter.Get() == true
}

// usage returns the text for dibsvet -h.
func usage(all []*analysis.Analyzer) string {
	var b strings.Builder
	b.WriteString(`dibsvet finds mistakes with locks of dibs.

  go vet -vettool=$(which dibsvet) ./...   with the cache of go vet
  dibsvet [flags] ./...                    alone
  dibsvet help [check]                     describe a check, and all flags

Checks:

`)
	for _, a := range all {
		title, _, _ := strings.Cut(a.Doc, "\n")
		fmt.Fprintf(&b, "  %-10s %s\n", a.Name, title)
	}
	b.WriteString(`
Flags:

  -CHECK         run only this check, such as -lostlease; may be repeated
  -CHECK=false   run all checks but this one
  -nofence.on    run nofence in addition to the others; it is off by default
  -fix           apply the fixes; with -diff, print them instead
  -json          print the findings as JSON
  -test=false    leave out test files

A comment silences a finding on its line, or on the next one:

  //dibsvet:ignore CHECK reason
`)
	return b.String()
}
