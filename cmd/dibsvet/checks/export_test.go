package checks

import "golang.org/x/tools/go/analysis"

// OfCallbacks returns the checks for packages without dibs. There a function literal that receives
// a context, as an argument for any function, counts as a function under a lock.
func OfCallbacks() []*analysis.Analyzer {
	return all(newSource(true), func() bool { return false })
}

// Makers are the functions of package dibs that make an option, as the check badname knows them.
var Makers = makers
