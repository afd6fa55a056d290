package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/go/analysis"
)

const noFenceDoc = `find writes under a lock that nothing protects from a late holder

A process can be stopped between the check of its lease and a write. When it continues, it
writes although the lock has a new holder. Only the written resource can reject that: it
compares the fence, or a Guard of the store ends the transaction.

The check inspects each function given to Do, Call, Run, Wrap or WrapCall, and the
functions of the same package that this function calls. If none of them uses Fence,
FenceOf, Guard, Holds or Lease.Err, the check reports the first write. That is a call of a
method such as Exec, Update, Set, Save, Insert, Put or Delete with a context. Readers and
semaphores are left out: their fences are not for comparison.

The check is off by default, because a fence may be compared where the check cannot see
it: in a repository that reads it from the context, for example. -nofence runs this check
only, -nofence.on adds it to the others.`

func newNoFence(src *analysis.Analyzer, enabled func() bool) *analysis.Analyzer {
	on := false
	a := newCheck(src, "nofence", notInTests, noFenceDoc, func(f *finder) {
		if !on && (enabled == nil || !enabled()) {
			return
		}
		declared := f.declaredFunctions()
		for _, call := range f.calls() {
			if l, ok := f.lockedFunc(call); ok && f.excludes(l) {
				f.checkWrites(l, declared)
			}
		}
	})
	a.Flags.BoolVar(&on, "on", false, "run this check in addition to the others")
	return a
}

// excludes reports whether a function's lock is exclusive, as far as the package shows it.
func (f *finder) excludes(l lockedFunc) bool {
	return l.lock == nil || namedIn(f.info.TypeOf(f.value(l.lock)), dibsPath) != "SharedLock"
}

// declaredFunctions returns the bodies of the functions declared in the package.
func (f *finder) declaredFunctions() map[*types.Func]*ast.BlockStmt {
	bodies := map[*types.Func]*ast.BlockStmt{}
	for cursor := range f.root.Preorder((*ast.FuncDecl)(nil)) {
		n := cursor.Node().(*ast.FuncDecl)
		if fn, ok := f.info.Defs[n.Name].(*types.Func); ok && n.Body != nil {
			bodies[fn] = n.Body
		}
	}
	return bodies
}

func (f *finder) checkWrites(l lockedFunc, declared map[*types.Func]*ast.BlockStmt) {
	var body *ast.BlockStmt
	if l.literal != nil {
		body = l.literal.Body
	} else if fn := f.function(f.value(l.function)); fn != nil {
		body = declared[fn.Origin()]
	}
	if body == nil {
		return
	}
	w := writes{finder: f, declared: declared}
	w.inspect(body, true)
	if w.first == nil || w.protected {
		return
	}
	f.report(analysis.Diagnostic{
		Pos: w.first.Pos(), End: w.first.End(),
		Message: "this write is not protected from a late holder: pass dibs.Fence(ctx) to a resource that rejects smaller fences, or use a Guard",
	})
}

// writes looks for writes and their protection.
type writes struct {
	*finder
	declared  map[*types.Func]*ast.BlockStmt
	first     ast.Node
	protected bool
}

// inspect inspects a body, and, if deeper, the bodies of the functions that it calls.
func (w *writes) inspect(body *ast.BlockStmt, deeper bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn := w.target(call).fn
		if fn == nil {
			return true
		}
		if w.first == nil && isWrite(fn) {
			w.first = methodAndArguments(call)
		}
		if deeper && w.declared[fn] != nil {
			w.inspect(w.declared[fn], false)
		}
		w.protected = w.protected || isProtection(fn)
		return true
	})
}

func isProtection(fn *types.Func) bool {
	d := dibsFuncOf(fn)
	return d.is("", "Fence", "FenceOf") || d.is("Client", "Holds") || d.is("Lease", "Err", "Fence", "FenceOf") ||
		ofDibs(fn.Pkg()) && strings.HasPrefix(fn.Name(), "Guard")
}

// isWrite reports whether a method, by its name, writes to a resource: a resource reached with a
// context, or a database.
func isWrite(fn *types.Func) bool {
	named := func(word string) bool { return beginsWithWord(fn.Name(), word) }
	if ofDibs(fn.Pkg()) || fn.Pkg() == nil || !slices.ContainsFunc(writeWords(), named) {
		return false
	}
	signature := fn.Signature()
	if fn.Name() == "Exec" && isPipeline(signature) { // it sends the pipeline's commands, which can be reads
		return false
	}
	parameters := signature.Params()
	withContext := parameters.Len() > 0 && isContext(parameters.At(0).Type())
	return withContext || signature.Recv() != nil && (fn.Pkg().Path() == "database/sql" || fn.Pkg().Path() == "gorm.io/gorm")
}

// isPipeline reports whether a method belongs to a pipeline, such as a Redis client's.
func isPipeline(method *types.Signature) bool {
	if method.Recv() == nil {
		return false
	}
	t := method.Recv().Type()
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && strings.HasPrefix(strings.ToLower(named.Obj().Name()), "pipeline")
}

func writeWords() []string {
	return []string{"Exec", "Update", "Set", "Save", "Insert", "Put", "Delete", "Create", "Upsert", "Store", "Write"}
}

// beginsWithWord reports whether a name is a word, or begins with it: SetNX and Set, not Setup.
func beginsWithWord(name, word string) bool {
	rest, ok := strings.CutPrefix(name, word)
	if !ok || !token.IsExported(name) {
		return false
	}
	next, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || !unicode.IsLower(next)
}
