package checks_test

import (
	"path"
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// Each testdata directory contains mistakes for a check, and similar but correct code. Where a
// check offers fixes, they should give the golden file.
func TestChecks(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	all := byName(checks.All(func() bool { return true }))
	patterns := []string{"./directive", "./indirect", "./clean"}
	for name := range all {
		patterns = append(patterns, "./"+name)
	}
	for name, other := range map[string]string{"directive": "lostlease", "indirect": "lostlease", "clean": "lostlease"} {
		all[name] = all[other]
	}
	analysistest.RunWithSuggestedFixes(t, dir, byDirectory(all), patterns...)
}

func byName(analyzers []*analysis.Analyzer) map[string]*analysis.Analyzer {
	named := map[string]*analysis.Analyzer{}
	for _, a := range analyzers {
		named[a.Name] = a
	}
	return named
}

// byDirectory returns an analyzer that runs, on each package, the check with its directory's name.
// So the packages are loaded only once, which takes most of the time.
func byDirectory(named map[string]*analysis.Analyzer) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:     "bydirectory",
		Doc:      "runs the check that has the name of the directory",
		Requires: named["lostlease"].Requires, // the same for all checks
		Run: func(pass *analysis.Pass) (any, error) {
			if a := named[path.Base(pass.Pkg.Path())]; a != nil {
				return a.Run(pass)
			}
			return nil, nil
		},
	}
}

func TestValid(t *testing.T) {
	if err := analysis.Validate(checks.All(nil)); err != nil {
		t.Error(err)
	}
}
