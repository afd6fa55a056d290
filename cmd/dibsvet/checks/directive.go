package checks

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// directivePrefix begins a comment that silences findings:
//
//	//dibsvet:ignore check[,check] reason
//
// It applies to its own line and to the next one.
const directivePrefix = "//dibsvet:ignore "

// directives contains a package's directives, by file and line.
type directives map[linePosition][]ignore

type linePosition struct {
	file string
	line int
}

// An ignore is a directive.
type ignore struct {
	checks []string
	reason string
}

// silence is the directives' effect on a finding.
type silence int

const (
	absent        silence = iota // no directive names the check
	withoutReason                // a directive silences it without a reason, and so has no effect
	silent
)

func findDirectives(fset *token.FileSet, files []*ast.File) directives {
	found := directives{}
	for _, file := range files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				found.add(fset.Position(comment.Pos()), comment.Text)
			}
		}
	}
	return found
}

func (d directives) add(at token.Position, comment string) {
	text, ok := strings.CutPrefix(comment, directivePrefix)
	if !ok {
		return
	}
	text, _, _ = strings.Cut(text, "//") // then follows a comment on the directive
	checks, reason, _ := strings.Cut(strings.TrimSpace(text), " ")
	line := linePosition{at.Filename, at.Line}
	d[line] = append(d[line], ignore{strings.Split(checks, ","), strings.TrimSpace(reason)})
}

// of returns the directives' effect on a check's finding.
func (d directives) of(at token.Position, check string) silence {
	result := absent
	for _, line := range []int{at.Line, at.Line - 1} {
		for _, one := range d[linePosition{at.Filename, line}] {
			switch {
			case !slices.Contains(one.checks, check):
			case one.reason != "":
				return silent
			default:
				result = withoutReason
			}
		}
	}
	return result
}
