package checks

import (
	"go/ast"

	"golang.org/x/tools/go/analysis"
)

const foreverDoc = `find calls that can wait for ever

A call without Wait or Attempts waits until its context ends. context.Background,
context.TODO and contexts made of them with WithValue or WithoutCancel never end. If the
holder hangs, the call hangs as well.

The check reports Lock, RLock, Acquire, Do and dibs.Call with such a context. It
reports a call only if the package shows all its options: those of the call, of the
primitive, and of dibs.New. So it reports nothing if the client comes from elsewhere.

It offers no fix, because only you know how long the call may wait.`

func newForever(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "forever", notInTests, foreverDoc, func(f *finder) {
		for _, call := range f.calls() {
			f.checkForever(call)
		}
	})
}

func (f *finder) checkForever(call *ast.CallExpr) {
	lock, name, ok := f.waitingCall(call)
	if !ok || len(call.Args) == 0 || !f.allValues(call.Args[0], f.neverEnds) {
		return
	}
	if made, ok := f.construction(lock); !ok || !f.hasNoLimit(call, made) {
		return
	}
	f.report(analysis.Diagnostic{
		Pos: call.Args[0].Pos(), End: call.Args[0].End(),
		Message: name + " with a context that never ends can wait for ever: add dibs.Wait(d), or use a context with a deadline",
	})
}

// waitingCall returns the lock of a call that waits for it, and the name of the called function.
func (f *finder) waitingCall(call *ast.CallExpr) (lock ast.Expr, name string, ok bool) {
	t := f.target(call)
	d := dibsFuncOf(t.fn)
	switch {
	case d.is("", "Call") && len(call.Args) > 1:
		return call.Args[1], "dibs.Call", true
	case d.is("Mutex", "Lock", "Do"), d.is("MultiMutex", "Lock", "Do"), d.is("Semaphore", "Acquire", "Do"),
		d.is("RWMutex", "Lock", "RLock", "Do"), d.is("Doer", "Do"):
		return t.receiver, d.name, t.receiver != nil
	}
	return nil, "", false
}

// hasNoLimit reports whether the package shows the options of all levels, and none of them
// limits the waiting.
func (f *finder) hasNoLimit(call *ast.CallExpr, made constructed) bool {
	client, ok := f.newClient(made.client)
	if !ok {
		return false
	}
	for _, level := range []*ast.CallExpr{call, made.call, client} {
		if options, known := f.options(level); !known || hasOption(options, "Wait", "Attempts") {
			return false
		}
	}
	return true
}

// neverEnds reports whether an expression makes a context that never ends. A context made by
// WithValue ends with its parent.
func (f *finder) neverEnds(e ast.Expr) (never bool, parent ast.Expr) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false, nil
	}
	fn := f.target(call).fn
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != "context" {
		return false, nil
	}
	switch fn.Name() {
	case "Background", "TODO", "WithoutCancel":
		return true, nil
	case "WithValue":
		return false, call.Args[0]
	}
	return false, nil
}
