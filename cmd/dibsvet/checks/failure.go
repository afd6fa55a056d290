package checks

import (
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// readsValues matches the names of functions that read a context's value.
var readsValues = regexp.MustCompile(`(?i)from(incoming|outgoing)?(context|ctx)$`)

// anyReportsFailure reports whether any of several results can report undone work, such as when a
// function's context ends.
func anyReportsFailure(results *types.Tuple) bool { return anyOf(results, reportsFailure) }

// anyOf reports whether any parameter's or result's type satisfies is.
func anyOf(variables *types.Tuple, is func(types.Type) bool) bool {
	for v := range variables.Variables() {
		if is(v.Type()) {
			return true
		}
	}
	return false
}

// reportsFailure reports whether a value can report a failure. An error and a context can. So can a
// value with a method that returns an error or a context, such as *sql.Row, *exec.Cmd or
// *http.Request. A slice, a channel or an iterator contains such values.
func reportsFailure(t types.Type) bool {
	if isFailure(t) {
		return true
	}
	switch u := t.Underlying().(type) {
	case *types.Slice:
		return reportsFailure(u.Elem())
	case *types.Chan:
		return reportsFailure(u.Elem())
	case *types.Signature:
		return returnsFailure(u) || isIteratorOfFailures(u)
	}
	return hasMethodOfFailure(t)
}

func isFailure(t types.Type) bool { return isError(t) || isContext(t) }

func returnsFailure(signature *types.Signature) bool { return anyOf(signature.Results(), isFailure) }

// isIteratorOfFailures reports whether a function is an iterator such as iter.Seq2[string, error].
func isIteratorOfFailures(signature *types.Signature) bool {
	if signature.Params().Len() != 1 || signature.Results().Len() > 0 {
		return false
	}
	yield, ok := signature.Params().At(0).Type().Underlying().(*types.Signature)
	return ok && anyOf(yield.Params(), isFailure)
}

// hasMethodOfFailure excludes loggers, whose methods report failures of the log.
func hasMethodOfFailure(t types.Type) bool {
	found := false
	for _, selection := range typeutil.IntuitiveMethodSet(t, nil) {
		method := selection.Obj().(*types.Func)
		if method.Name() == "Warn" || method.Name() == "Warnf" {
			return false
		}
		found = found || method.Exported() && returnsFailure(method.Signature()) && !encodes(method)
	}
	return found
}

// encodes reports whether a method converts its value, for an interface in encoding, fmt or
// database/sql. Plain value types have such methods, for example time.Time.
func encodes(method *types.Func) bool {
	name := method.Name()
	for _, prefix := range []string{"Marshal", "Unmarshal", "Append", "Gob", "Encode", "Decode"} {
		if strings.HasPrefix(name, prefix) && name != "Decode" { // Decode(&v) is a database's reply
			return true
		}
	}
	signature := method.Signature()
	return name == "Value" && signature.Params().Len() == 0 || name == "Scan" && !signature.Variadic()
}
