package checks_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// check returns the analyzer of a check.
func check(t *testing.T, name string) *analysis.Analyzer {
	t.Helper()
	for _, a := range checks.All(func() bool { return true }) {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("no check %q", name)
	return nil
}

// Each directory of testdata has the mistakes of one check, and code that is close to them and
// correct. Where a check offers fixes, a golden file has the result.
func TestChecks(t *testing.T) {
	fixes := map[string]bool{"isbusy": true, "lostlease": true, "outerctx": true, "unlockerr": true}
	for _, a := range checks.All(nil) {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			run := analysistest.Run
			if fixes[a.Name] {
				run = analysistest.RunWithSuggestedFixes
			}
			run(t, testdata(t), check(t, a.Name), "./"+a.Name)
		})
	}
}

func testdata(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDirectives(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, testdata(t), check(t, "lostlease"), "./directive")
}

func TestPackagesWithoutAnImportOfDibs(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, testdata(t), check(t, "lostlease"), "./indirect", "./clean")
}

func TestNoFenceIsOff(t *testing.T) {
	t.Parallel()
	for _, a := range checks.All(nil) {
		if a.Name != "nofence" {
			continue
		}
		for _, result := range analysistest.Run(ignoreWants{}, testdata(t), a, "./nofence") {
			if len(result.Diagnostics) > 0 {
				t.Errorf("%d findings without the flag, want none", len(result.Diagnostics))
			}
		}
		if err := a.Flags.Set("on", "true"); err != nil {
			t.Fatal(err)
		}
		analysistest.Run(t, testdata(t), a, "./nofence")
	}
}

// ignoreWants makes analysistest ignore the expectations of testdata.
type ignoreWants struct{}

func (ignoreWants) Errorf(string, ...any) {}

func TestValid(t *testing.T) {
	if err := analysis.Validate(checks.All(nil)); err != nil {
		t.Error(err)
	}
}
