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

	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

func main() { multichecker.Main(checks.All(nofenceGiven)...) }

// nofenceGiven reports whether the command line has -nofence, which runs that check only.
// The checks run after the command line has been parsed.
func nofenceGiven() bool {
	given := flag.Lookup("nofence")
	if given == nil {
		return false
	}
	getter, ok := given.Value.(flag.Getter)
	return ok && getter.Get() == true
}
