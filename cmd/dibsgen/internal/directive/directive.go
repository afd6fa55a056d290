// Package directive parses dibsgen's directives, such as
//
//	//dibs:lock "order:"+o.ID wait=3s
//
// It reads a comment's text. The compiler checks whether the names in it exist.
package directive

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Kind is the word after "dibs:", which selects the primitive.
type Kind string

// The directive kinds.
const (
	Lock    Kind = "lock"    // a Mutex, or a MultiMutex on several names
	Read    Kind = "read"    // an RWMutex, for reading
	Write   Kind = "write"   // an RWMutex, for writing
	Permits Kind = "permits" // a permit from a Semaphore
	Once    Kind = "once"    // a periodic job
)

var kinds = []Kind{Lock, Read, Write, Permits, Once}

// tool is the word before the colon.
const tool = "dibs"

// A Directive is a parsed comment.
type Directive struct {
	Kind     Kind
	Names    []Expression // at least one
	Spread   bool         // Names is a single expression with type []string
	Count    Expression   // the number of permits, for Permits only
	Interval time.Duration
	Options  []Option
}

// An Expression is a Go expression in a comment's text.
type Expression struct {
	Text   string
	Offset int // in bytes from the comment's beginning
}

// An Error is why a comment is not a directive.
type Error struct {
	Offset int // in bytes from the comment's beginning
	Text   string
}

func (e *Error) Error() string { return e.Text }

// Errors contains all problems in a comment, in the order of the text.
type Errors []*Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Text
	}
	return strings.Join(texts, "\n")
}

func fail(offset int, format string, args ...any) *Error {
	return &Error{Offset: offset, Text: fmt.Sprintf(format, args...)}
}

// mistaken matches comments that are no directives for the go command, but look like directives:
// with a space, in upper case, or as a block. With a space only the directives' names match: "//
// dibs:meta is a key" is a sentence.
var mistaken = regexp.MustCompile(`^(?i)(//dibs:|/\*\s*dibs:[a-z]|// +dibs: ?(lock|read|write|permits|once)( |$))`)

// Parse parses a comment, with its slashes. Its error's type is Errors. Without an error, nil means
// that the comment is not a dibs directive.
func Parse(comment string) (*Directive, error) {
	found, ok := ast.ParseDirective(0, comment)
	switch {
	case ok && found.Tool == tool:
		d, wrong := parse(found.Name, found.Args, int(found.ArgsPos))
		if len(wrong) > 0 {
			return nil, wrong
		}
		return d, nil
	case mistaken.MatchString(comment):
		return nil, Errors{fail(0, "not a directive: write it as //dibs:lock, without spaces before the kind and in lower case")}
	}
	return nil, nil
}

func parse(name, args string, offset int) (d *Directive, wrong Errors) {
	kind := Kind(name)
	if !slices.Contains(kinds, kind) {
		return nil, Errors{fail(0, "//dibs:%s: unknown directive; want lock, read, write, permits or once", name)}
	}
	names, err := scanNames(args, offset)
	if err != nil {
		return nil, Errors{err} // it is not known where the names end
	}
	d = &Directive{Kind: kind, Names: names.expressions, Spread: names.spread}
	add := func(err *Error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	add(d.checkNames())
	rest := words{text: args[names.end:], offset: offset + names.end}
	if err := d.parseRest(&rest); err != nil {
		add(err)
		rest.skipTo(isOption)
	}
	var more Errors
	d.Options, more = parseOptions(kind, d.Interval, rest)
	return d, append(wrong, more...)
}

// checkNames rejects several names for a primitive with a single name.
func (d *Directive) checkNames() *Error {
	switch {
	case d.Kind == Lock && d.Spread && len(d.Names) > 1:
		return fail(d.Names[0].Offset, "//dibs:lock: a list with ... must be the only name; append the others to it in a function")
	case d.Kind != Lock && (d.Spread || len(d.Names) > 1):
		return fail(d.Names[0].Offset, "//dibs:%s: several names; only //dibs:lock has more than one", d.Kind)
	}
	return nil
}

// parseRest parses the text after the names, without the options.
func (d *Directive) parseRest(rest *words) *Error {
	switch d.Kind {
	case Permits:
		return d.parseCount(rest)
	case Once:
		return d.parseInterval(rest)
	}
	return nil
}

func (d *Directive) parseCount(rest *words) *Error {
	if first, _ := rest.first(); first == "" || isOption(first) {
		return fail(rest.offset, `//dibs:permits: the number of permits is missing; want //dibs:permits "name" 4`)
	}
	count, err := scanNames(rest.text, rest.offset)
	switch {
	case err != nil:
		return err
	case count.spread || len(count.expressions) != 1:
		return fail(rest.offset, "//dibs:permits: want one number of permits")
	}
	d.Count = count.expressions[0]
	rest.skip(count.end)
	return nil
}

func (d *Directive) parseInterval(rest *words) *Error {
	word, at := rest.first()
	interval, err := time.ParseDuration(word)
	if err != nil {
		return fail(at, `//dibs:once: want an interval such as 50m after the name, have %q`, word)
	}
	if err := rejection(Once, interval, nil); err != nil {
		return fail(at, "//dibs:once: %s", reason(err))
	}
	d.Interval = interval
	rest.skip(at - rest.offset + len(word))
	return nil
}

// String returns the directive as a comment that Parse accepts.
func (d *Directive) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "//%s:%s ", tool, d.Kind)
	for i, name := range d.Names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name.Text)
	}
	if d.Spread {
		b.WriteString(token.ELLIPSIS.String())
	}
	switch d.Kind {
	case Permits:
		b.WriteString(" " + d.Count.Text)
	case Once:
		b.WriteString(" " + d.Interval.String())
	}
	for _, o := range d.Options {
		b.WriteString(" " + o.word)
	}
	return b.String()
}
