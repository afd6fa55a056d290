// Package checks contains dibsvet's analyzers. Each finds a kind of mistake in programs that use
// package dibs. docs/dibsvet.md shows each mistake, and its correction.
//
// The analyzers work with every driver from golang.org/x/tools/go/analysis. They use no facts, so a
// driver need not analyze a package's imports.
package checks

import (
	"golang.org/x/tools/go/analysis"
)

// All returns an analyzer for each check. The check nofence reports nothing unless enabled returns
// true, or its flag "on" is set. A nil function counts as false. Each call returns new analyzers,
// with their own flags.
func All(enabled func() bool) []*analysis.Analyzer {
	return all(newSource(false), enabled)
}

func all(src *analysis.Analyzer, enabled func() bool) []*analysis.Analyzer {
	return []*analysis.Analyzer{
		newBadName(src),
		newIgnoredErr(src),
		newIsBusy(src),
		newLostLease(src),
		newNoFence(src, enabled),
		newOuterCtx(src),
		newUnlockErr(src),
	}
}

// scope says in which files a check reports findings.
type scope bool

// Tests intentionally do what most checks report: they keep locks, act as another process, and make
// rejected requests.
const (
	allFiles   scope = true
	notInTests scope = false
)

// newCheck returns an analyzer that calls find for each package able to use dibs.
func newCheck(src *analysis.Analyzer, name string, in scope, doc string, find func(*finder)) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:     name,
		Doc:      doc,
		URL:      "https://github.com/dibslock/dibs/blob/main/docs/dibsvet.md#" + name,
		Requires: []*analysis.Analyzer{src},
		Run: func(pass *analysis.Pass) (any, error) {
			if s := pass.ResultOf[src].(*source); s != nil {
				find(&finder{source: s, pass: pass, check: name, scope: in})
			}
			return nil, nil
		},
	}
}

// A finder looks for a check's mistakes in a package.
type finder struct {
	*source
	pass  *analysis.Pass
	check string
	scope scope
}

// report reports a mistake, unless it is in a test, or a directive silences it.
func (f *finder) report(d analysis.Diagnostic) {
	if f.scope == notInTests && f.inTest(d.Pos) {
		return
	}
	switch f.directives.of(f.pass.Fset.Position(d.Pos), f.check) {
	case silent:
		return
	case withoutReason:
		d.Message += " (dibsvet:ignore has no effect here: it gives no reason)"
	case absent:
	}
	f.pass.Report(d)
}
