package checks

import (
	"errors"
	"go/ast"
	"go/constant"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

const badNameDoc = `find names, numbers and options that dibs rejects

Some requests always return ErrInvalid: an empty name, a TTL of 5 ms, a MaxHold below the
MinHold. So do options without a meaning: Wait given to TryLock, Token given to New.

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
	if d.name == "" || len(call.Args) == 0 && !d.is("Client", "All") {
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
	case d.receiver == "":
		if made, ok := f.makeOption(option{call, d.name}); ok {
			f.reportInvalid(call, ofOption(made).err())
		}
	case d.is("Lease", "Extend") && len(call.Args) == 2:
		if ttl, ok := f.durationOf(call.Args[1]); ok {
			f.reportInvalid(call.Args[1], ofOption(dibs.TTL(ttl)).err())
		}
	case d.is("Client", "Inspect") && len(call.Args) == 2:
		f.checkName(call.Args[1])
	case d.is("Client", "Revoke") && len(call.Args) == 4:
		f.checkRevoke(call)
	case d.is("Client", "Attach") && len(call.Args) >= 2:
		f.checkAttach(call)
	case d.is("Client", "All"):
		f.checkNames(call)
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
	if given := f.constant(call.Args[2]); given != nil && constant.Sign(given) == 0 {
		f.reportInvalid(call.Args[2], driver.CheckRevoke(driver.RevokeRequest{Name: name}))
	}
	if reason, ok := f.stringOf(call.Args[3]); ok {
		f.reportInvalid(call.Args[3], driver.CheckRevoke(driver.RevokeRequest{Name: name, Fence: fence, Reason: reason}))
	}
}

func (f *finder) checkAttach(call *ast.CallExpr) {
	f.checkName(call.Args[0])
	if token, ok := f.stringOf(call.Args[1]); ok {
		_, err := dibs.New(memstore.New()).Attach("…", token)
		f.reportInvalid(call.Args[1], err)
	}
	f.checkList(call, "Attach", atCall)
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
	for _, name := range call.Args {
		f.checkName(name)
	}
	if call.Ellipsis.IsValid() {
		return
	}
	names := make([]string, len(call.Args))
	for i, argument := range call.Args {
		name, ok := f.stringOf(argument)
		if !ok || driver.CheckName(name) != nil {
			return
		}
		names[i] = name
	}
	r := newRequest()
	r.kind, r.names = "All", names
	f.reportInvalid(methodAndArguments(call), r.err())
}

// checkList checks the options for New or for a primitive in combination. set puts them into the
// request at their level.
func (f *finder) checkList(call *ast.CallExpr, kind string, set func(r *request, given []dibs.Option)) {
	r := newRequest()
	r.kind = kind
	set(&r, f.validOptions(call))
	f.reportInvalid(methodAndArguments(call), r.err())
}

// checkCall checks a call on a primitive. It checks the number of permits, and the options of
// the call in combination with those of the primitive and the client.
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
	if d.is("Semaphore", "Acquire", "TryAcquire") && len(call.Args) > 1 {
		if n, ok := f.intOf(call.Args[1]); ok {
			acquire := newRequest()
			acquire.kind, acquire.name, acquire.permits, acquire.n = "Semaphore", r.name, r.permits, n
			f.reportInvalid(call.Args[1], acquire.err())
		}
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
		if ok && ofOption(made).err() == nil {
			valid = append(valid, made)
		}
	}
	return valid
}

// makeOption makes the option that a call makes, if its arguments are constants.
func (f *finder) makeOption(o option) (dibs.Option, bool) {
	durations := map[string]func(time.Duration) dibs.Option{
		"TTL": dibs.TTL, "Wait": dibs.Wait, "Timeout": dibs.Timeout, "MaxHold": dibs.MaxHold, "MinHold": dibs.MinHold,
	}
	texts := map[string]func(string) dibs.Option{"Label": dibs.Label, "Token": dibs.Token}
	arguments := o.call.Args
	switch {
	case durations[o.name] != nil && len(arguments) == 1:
		d, ok := f.durationOf(arguments[0])
		return durations[o.name](d), ok
	case (o.name == "NoRenew" || o.name == "Reentrant") && len(arguments) == 0:
		return map[string]dibs.Option{"NoRenew": dibs.NoRenew(), "Reentrant": dibs.Reentrant()}[o.name], true
	case texts[o.name] != nil && len(arguments) == 1:
		text, ok := f.stringOf(arguments[0])
		return texts[o.name](text), ok
	case o.name == "Attempts" && len(arguments) == 2:
		n, ok := f.intOf(arguments[0])
		every, constant := f.durationOf(arguments[1])
		return dibs.Attempts(n, every), ok && constant
	}
	return nil, false
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
