package checks

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// dibsPath is package dibs' path, which identifies its types.
const dibsPath = "github.com/dibslock/dibs"

// fromDibs reports whether an object belongs to package dibs, or to package driver, which declares
// some of its errors.
func fromDibs(o types.Object) bool {
	return o.Pkg() != nil && (o.Pkg().Path() == dibsPath || o.Pkg().Path() == dibsPath+"/driver")
}

// A dibsFunc is a function or method in package dibs.
type dibsFunc struct {
	receiver string // the type's name; empty for a function
	name     string
}

func (d dibsFunc) is(receiver string, names ...string) bool {
	return d.receiver == receiver && slices.Contains(names, d.name)
}

// dibsFuncOf returns a function as a dibsFunc, or a zero dibsFunc.
func dibsFuncOf(fn *types.Func) dibsFunc {
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != dibsPath {
		return dibsFunc{}
	}
	d := dibsFunc{name: fn.Name()}
	if receiver := fn.Signature().Recv(); receiver != nil {
		d.receiver = namedIn(receiver.Type(), dibsPath)
	}
	return d
}

// namedIn returns a type's name, or its pointer's element's, if the type is declared in a package;
// or nothing.
func namedIn(t types.Type, path string) string {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != path {
		return ""
	}
	return named.Obj().Name()
}

// ofDibs reports whether a package belongs to dibs: the root package, a store, or any other.
func ofDibs(pkg *types.Package) bool {
	return pkg != nil && (pkg.Path() == dibsPath || strings.HasPrefix(pkg.Path(), dibsPath+"/"))
}

// A target is a call's function, and its receiver in the source.
type target struct {
	fn       *types.Func
	receiver ast.Expr // nil for a function, and for a method expression
}

// target returns a call's function. It sees through a variable that has only one value, such as a
// method value.
func (s *source) target(call *ast.CallExpr) target {
	fun := ast.Unparen(call.Fun)
	fn, _ := typeutil.Callee(s.info, call).(*types.Func)
	if fn == nil {
		fun = s.value(fun)
		fn = s.function(fun)
	}
	if fn == nil {
		return target{}
	}
	t := target{fn: fn.Origin()}
	if selector, ok := withoutTypeArguments(fun).(*ast.SelectorExpr); ok && s.isMethodValue(selector) {
		t.receiver = selector.X
	}
	return t
}

// function returns an expression's declared function, or nil.
func (s *source) function(e ast.Expr) *types.Func {
	switch e := withoutTypeArguments(e).(type) {
	case *ast.Ident:
		fn, _ := s.info.Uses[e].(*types.Func)
		return fn
	case *ast.SelectorExpr:
		fn, _ := s.info.Uses[e.Sel].(*types.Func)
		return fn
	}
	return nil
}

func (s *source) isMethodValue(e *ast.SelectorExpr) bool {
	selection := s.info.Selections[e]
	return selection != nil && selection.Kind() == types.MethodVal
}

// withoutTypeArguments removes parentheses and explicit type arguments.
func withoutTypeArguments(e ast.Expr) ast.Expr {
	switch e := ast.Unparen(e).(type) {
	case *ast.IndexExpr:
		return ast.Unparen(e.X)
	case *ast.IndexListExpr:
		return ast.Unparen(e.X)
	default:
		return e
	}
}

// dibsCall returns the dibs function that a call calls, or a zero dibsFunc.
func (s *source) dibsCall(call *ast.CallExpr) dibsFunc { return dibsFuncOf(s.target(call).fn) }

// A lockedFunc is a function that a call runs, or will run, under a lock.
type lockedFunc struct {
	call     *ast.CallExpr
	dibs     dibsFunc
	lock     ast.Expr     // the primitive; nil if the call does not show it
	function ast.Expr     // as it is given to the call
	literal  *ast.FuncLit // nil if the function is declared elsewhere
}

// lockedFunc returns the function that a call runs under a lock: Do, Run, Call, Wrap or WrapCall.
// Another type's Do counts if its signature is that of dibs.Doer.
func (s *source) lockedFunc(call *ast.CallExpr) (lockedFunc, bool) {
	t := s.target(call)
	d := dibsFuncOf(t.fn)
	l := lockedFunc{call: call, dibs: d, lock: t.receiver}
	var at int // the function's index
	switch {
	case d.is("", "Call"):
		at = 2
		if len(call.Args) > 1 {
			l.lock = call.Args[1]
		}
	case d.is("", "Wrap", "WrapCall"):
		at, l.lock = 1, nil
	case d.name == "Do" || d.is("Election", "Run") || isDo(t.fn):
		at = 1
	case s.callbacks:
		at = slices.IndexFunc(call.Args, s.isCallback)
	default:
		at = -1
	}
	if at < 0 || len(call.Args) <= at {
		return lockedFunc{}, false
	}
	l.function = call.Args[at]
	l.literal, _ = s.value(l.function).(*ast.FuncLit)
	return l, true
}

// isCallback reports whether an expression is a function literal that receives a context.
func (s *source) isCallback(e ast.Expr) bool {
	literal, ok := ast.Unparen(e).(*ast.FuncLit)
	return ok && s.contextParameter(literal) != nil
}

// contextParameter returns a function's first parameter if it is a context, or nil.
func (s *source) contextParameter(literal *ast.FuncLit) *types.Var {
	signature, ok := s.info.TypeOf(literal).(*types.Signature)
	if !ok || signature.Params().Len() == 0 || !isContext(signature.Params().At(0).Type()) {
		return nil
	}
	return signature.Params().At(0)
}

// isDo reports whether a method is a Do with dibs.Doer's signature.
func isDo(fn *types.Func) bool {
	return fn != nil && fn.Name() == "Do" && fn.Signature().Recv() != nil && fn.Signature().Params().Len() == 3 && takesOptions(fn)
}

// takesOptions reports whether a function's last parameter is ...dibs.Option.
func takesOptions(fn *types.Func) bool {
	if fn == nil || !fn.Signature().Variadic() {
		return false
	}
	parameters := fn.Signature().Params()
	slice, ok := parameters.At(parameters.Len() - 1).Type().(*types.Slice)
	return ok && namedIn(slice.Elem(), dibsPath) == "Option"
}

// givesLease reports whether a function returns a new lease and an error.
func givesLease(fn *types.Func) bool {
	if fn == nil {
		return false
	}
	results := fn.Signature().Results()
	if results.Len() != 2 || namedIn(results.At(0).Type(), dibsPath) != "Lease" || !isError(results.At(1).Type()) {
		return false
	}
	switch fn.Name() {
	case "Lock", "TryLock", "Campaign":
		return true
	}
	return false
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// isContext reports whether a type is context.Context.
func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && namedIn(named, "context") == "Context"
}

// A constructed lock is a primitive whose constructor the package shows.
type constructed struct {
	call   *ast.CallExpr // to Client.Mutex and the like
	kind   string        // the method's name
	client ast.Expr
}

// construction returns a primitive's constructor, if the package shows it.
func (s *source) construction(lock ast.Expr) (constructed, bool) {
	if lock == nil {
		return constructed{}, false
	}
	call, ok := s.value(lock).(*ast.CallExpr)
	if !ok {
		return constructed{}, false
	}
	t := s.target(call)
	switch d := dibsFuncOf(t.fn); {
	case d.is("RWMutex", "Reader", "Writer"), d.is("Semaphore", "Permits"):
		return s.construction(t.receiver)
	case d.is("Client", "Mutex", "RWMutex", "Semaphore", "All", "Election", "Once") && t.receiver != nil:
		return constructed{call: call, kind: d.name, client: t.receiver}, true
	}
	return constructed{}, false
}

// newClient returns the dibs.New call for a client, if the package shows it.
func (s *source) newClient(client ast.Expr) (*ast.CallExpr, bool) {
	call, ok := s.value(client).(*ast.CallExpr)
	return call, ok && s.dibsCall(call).is("", "New")
}

// An option is a call to a dibs option.
type option struct {
	call *ast.CallExpr
	name string // such as "Wait"
}

// options returns a call's options. known is false if the package does not show them all.
func (s *source) options(call *ast.CallExpr) (given []option, known bool) {
	fn := s.target(call).fn
	if !takesOptions(fn) {
		return nil, true
	}
	known = true
	for _, argument := range call.Args[min(fn.Signature().Params().Len()-1, len(call.Args)):] {
		value := s.value(argument)
		made, ok := value.(*ast.CallExpr)
		if !ok {
			zero, ok := value.(*ast.CompositeLit)
			known = known && (s.isNil(value) || ok && len(zero.Elts) == 0)
			continue
		}
		d := s.dibsCall(made)
		if d.receiver != "" || d.name == "" {
			known = false
			continue
		}
		given = append(given, option{made, d.name})
	}
	return given, known
}
