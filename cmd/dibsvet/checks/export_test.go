package checks

import "golang.org/x/tools/go/analysis"

// OfCallbacks returns the checks for packages that do not use dibs. There a function literal that
// receives a context, as an argument of any function, counts as one under a lock.
func OfCallbacks() []*analysis.Analyzer {
	return all(newSource(true), func() bool { return false })
}

// Makers are the functions of package dibs that make an option, as the check badname knows them.
var Makers = makers
