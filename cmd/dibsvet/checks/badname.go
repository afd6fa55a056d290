package checks

import (
	"errors"
	"go/ast"
	"go/constant"
	"reflect"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

const badNameDoc = `find names, numbers and options that dibs rejects

Some requests always return ErrInvalid: an empty name, a TTL of 5 ms, a MaxHold below the
MinHold. So do options without a meaning: Wait given to TryLock, OwnerToken given to New.

The check repeats each request whose arguments are constants, with a context that has
ended. So its rules are those of the version of dibs that dibsvet is built with, and its
messages are those of dibs. In these, "…" stands for a name that is not constant.`

func newBadName(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "badname", notInTests, badNameDoc, func(f *finder) {
		for _, call := range f.calls() {
			f.checkArguments(call)
		}
	})
}

// checkArguments checks a call's arguments. Each rejected argument is reported once, and not a
// second time in combination with others.
func (f *finder) checkArguments(call *ast.CallExpr) {
	t := f.target(call)
	d := dibsFuncOf(t.fn)
	if d.name == "" || len(call.Args) == 0 {
		return
	}
	switch {
	case d.is("", "New"):
		f.checkList(call, "Mutex", atClient)
	case d.is("", "Call") && len(call.Args) > 1:
		f.checkCall(call, call.Args[1], d)
	case d.is("", "ParseOptions"):
		if words, ok := f.stringOf(call.Args[0]); ok {
			_, err := dibs.ParseOptions(words)
			f.reportInvalid(call.Args[0], err)
		}
	case d.is("", "NewHandle") && len(call.Args) == 2:
		f.checkHandle(call)
	case d.is("Lease", "Yield"):
		f.checkList(call, "Yield", atCall)
	case d.receiver == "":
		if made, ok := f.makeOption(option{call, d.name}); ok {
			f.reportInvalid(call, optionErr(made))
		}
	case d.is("Lease", "Extend") && len(call.Args) == 2:
		if ttl, ok := f.durationOf(call.Args[1]); ok {
			f.reportInvalid(call.Args[1], optionErr(dibs.TTL(ttl)))
		}
	case d.is("Client", "Inspect") && len(call.Args) == 2:
		f.checkName(call.Args[1])
	case d.is("Client", "Revoke") && len(call.Args) == 4:
		f.checkRevoke(call)
	case d.is("Client", "Attach"):
		f.checkList(call, "Attach", atCall)
	case d.is("Semaphore", "Permits"):
		f.checkPermits(call, t.receiver)
	case d.is("Client", "All"):
		f.checkNames(call)
		f.checkList(call, "All", atPrimitive)
	case d.receiver == "Client" && takesOptions(t.fn):
		f.checkConstructor(call, d.name)
		f.checkList(call, d.name, atPrimitive)
	case takesOptions(t.fn):
		f.checkCall(call, t.receiver, d)
	}
}

// reportInvalid reports an ErrInvalid.
func (f *finder) reportInvalid(n ast.Node, err error) {
	if !errors.Is(err, dibs.ErrInvalid) {
		return
	}
	reason := strings.TrimPrefix(err.Error(), dibs.ErrInvalid.Error()+": ")
	f.report(analysis.Diagnostic{Pos: n.Pos(), End: n.End(), Message: "dibs rejects this: " + reason})
}

func (f *finder) checkName(e ast.Expr) {
	if name, ok := f.stringOf(e); ok {
		f.reportInvalid(e, driver.CheckName(name))
	}
}

func (f *finder) checkRevoke(call *ast.CallExpr) {
	f.checkName(call.Args[1])
	const name, fence = "…", 1
	if holder, ok := f.value(call.Args[2]).(*ast.CompositeLit); ok && len(holder.Elts) == 0 {
		f.reportInvalid(call.Args[2], driver.CheckRevoke(driver.RevokeRequest{Name: name}))
	}
	if reason, ok := f.stringOf(call.Args[3]); ok {
		f.reportInvalid(call.Args[3], driver.CheckRevoke(driver.RevokeRequest{Name: name, Fence: fence, Reason: reason}))
	}
}

func (f *finder) checkHandle(call *ast.CallExpr) {
	f.checkName(call.Args[0])
	if token, ok := f.stringOf(call.Args[1]); ok {
		_, err := dibs.NewHandle("…", token).MarshalText()
		f.reportInvalid(call.Args[1], err)
	}
}

// checkPermits checks a number of permits. semaphore is the expression that they are of.
func (f *finder) checkPermits(call *ast.CallExpr, semaphore ast.Expr) {
	r := newRequest()
	made, ok := f.construction(semaphore)
	if ok {
		f.addPrimitive(&r, made)
	}
	n, ok := f.intOf(call.Args[0])
	if !ok || r.err() != nil { // reported where the semaphore is made
		return
	}
	r.kind, r.n = "Semaphore", n
	f.reportInvalid(call.Args[0], r.err())
}

// checkConstructor checks the name and the number for a new primitive.
func (f *finder) checkConstructor(call *ast.CallExpr, kind string) {
	f.checkName(call.Args[0])
	if len(call.Args) < 2 {
		return
	}
	r := newRequest()
	r.kind = kind
	if permits, ok := f.intOf(call.Args[1]); ok && kind == "Semaphore" {
		r.permits = permits
	}
	if every, ok := f.durationOf(call.Args[1]); ok && kind == "Once" {
		r.every = every
	}
	f.reportInvalid(call.Args[1], r.err())
}

// checkNames checks the names in All, and their number.
func (f *finder) checkNames(call *ast.CallExpr) {
	var given []ast.Expr
	switch list := f.value(call.Args[0]).(type) {
	case *ast.CompositeLit:
		given = list.Elts
	case *ast.Ident:
		if !f.isNil(list) {
			return
		}
	default:
		return
	}
	for _, name := range given {
		f.checkName(name)
	}
	names := make([]string, len(given))
	for i, argument := range given {
		name, ok := f.stringOf(argument)
		if !ok || driver.CheckName(name) != nil {
			return
		}
		names[i] = name
	}
	r := newRequest()
	r.kind, r.names = "All", names
	f.reportInvalid(call.Args[0], r.err())
}

// checkList checks the options for New or for a primitive in combination. set puts them into the
// request at their level.
func (f *finder) checkList(call *ast.CallExpr, kind string, set func(r *request, given []dibs.Option)) {
	r := newRequest()
	r.kind = kind
	set(&r, f.validOptions(call))
	f.reportInvalid(methodAndArguments(call), r.err())
}

// checkCall checks a call on a primitive: the options of the call in combination with those of the
// primitive and the client.
func (f *finder) checkCall(call *ast.CallExpr, lock ast.Expr, d dibsFunc) {
	r := newRequest()
	if d.receiver != "" {
		r.kind = methodOf(d.receiver)
	}
	r.try = strings.HasPrefix(d.name, "Try")
	if made, ok := f.construction(lock); ok {
		f.addPrimitive(&r, made)
	}
	if r.err() != nil && f.reported(r) {
		return
	}
	r.call = f.validOptions(call)
	f.reportInvalid(methodAndArguments(call), r.err())
}

// methodOf returns the Client method that returns a primitive.
func methodOf(primitive string) string {
	if primitive == "MultiMutex" {
		return "All"
	}
	return primitive
}

// reported reports whether the options for New or for the primitive are rejected separately, so
// that the finding is there.
func (f *finder) reported(r request) bool {
	client, lock := newRequest(), r
	client.client, lock.client = r.client, nil
	return client.err() != nil || lock.err() != nil
}

// addPrimitive adds the visible options for a primitive and its client.
func (f *finder) addPrimitive(r *request, made constructed) {
	r.kind, r.lock = made.kind, f.validOptions(made.call)
	if client, ok := f.newClient(made.client); ok {
		r.client = f.validOptions(client)
	}
	if made.kind == "All" || len(made.call.Args) == 0 {
		return
	}
	if name, ok := f.stringOf(made.call.Args[0]); ok && driver.CheckName(name) == nil {
		r.name = name
	}
	if len(made.call.Args) < 2 {
		return
	}
	permits, ok := f.intOf(made.call.Args[1])
	if ok && made.kind == "Semaphore" && permits > 0 {
		r.permits = permits
	}
	if every, ok := f.durationOf(made.call.Args[1]); ok && made.kind == "Once" {
		r.every = every
	}
}

// validOptions returns the options that have constant arguments and are valid on their own.
func (f *finder) validOptions(call *ast.CallExpr) (valid []dibs.Option) {
	given, _ := f.options(call)
	for _, o := range given {
		made, ok := f.makeOption(o)
		if ok && optionErr(made) == nil {
			valid = append(valid, made)
		}
	}
	return valid
}

// makers are the functions of package dibs that make an option.
var makers = map[string]any{
	"TTL": dibs.TTL, "Wait": dibs.Wait, "Timeout": dibs.Timeout, "MaxHold": dibs.MaxHold, "MinHold": dibs.MinHold,
	"Attempts": dibs.Attempts, "Label": dibs.Label, "OwnerToken": dibs.OwnerToken,
	"NoRenew": dibs.NoRenew, "Reentrant": dibs.Reentrant, "RetryFailed": dibs.RetryFailed, "Observe": dibs.Observe,
}

// makeOption makes the option that a call makes, if its arguments are constants.
func (f *finder) makeOption(o option) (made dibs.Option, ok bool) {
	arguments := o.call.Args
	switch maker := makers[o.name].(type) {
	case func() dibs.Option:
		return maker(), true
	case func(time.Duration) dibs.Option:
		d, ok := f.durationOf(arguments[0])
		return maker(d), ok
	case func(string) dibs.Option:
		text, ok := f.stringOf(arguments[0])
		return maker(text), ok
	case func(int, time.Duration) dibs.Option:
		if len(arguments) < 2 { // a call that returns both
			break
		}
		n, ok := f.intOf(arguments[0])
		every, constant := f.durationOf(arguments[1])
		return maker(n, every), ok && constant
	case func(dibs.Hooks) dibs.Option:
		hooks, ok := f.hooksOf(arguments[0])
		return maker(hooks), ok
	}
	return dibs.Option{}, false
}

// hooksOf returns hooks of which those are set that a literal sets.
func (f *finder) hooksOf(e ast.Expr) (hooks dibs.Hooks, ok bool) {
	literal, ok := f.value(e).(*ast.CompositeLit)
	if !ok {
		return hooks, false
	}
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return hooks, false
		}
		name, ok := pair.Key.(*ast.Ident)
		if !ok || f.isNil(pair.Value) {
			continue
		}
		if field := reflect.ValueOf(&hooks).Elem().FieldByName(name.Name); field.IsValid() {
			field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) (zero []reflect.Value) {
				for result := range field.Type().Outs() { // a nil context of AcquireStart
					zero = append(zero, reflect.Zero(result))
				}
				return zero
			}))
		}
	}
	return hooks, true
}

func (f *finder) stringOf(e ast.Expr) (string, bool) {
	v := f.constant(e)
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

func (f *finder) intOf(e ast.Expr) (int, bool) {
	v := f.constant(e)
	if v == nil {
		return 0, false
	}
	n, exact := constant.Int64Val(constant.ToInt(v))
	return int(n), exact
}

func (f *finder) durationOf(e ast.Expr) (time.Duration, bool) {
	n, ok := f.intOf(e)
	return time.Duration(n), ok
}
