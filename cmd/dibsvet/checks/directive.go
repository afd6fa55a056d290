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

// directives are the directives of a package, by file and line.
type directives map[linePosition][]ignore

type linePosition struct {
	file string
	line int
}

// An ignore is one directive.
type ignore struct {
	checks []string
	reason string
}

// silence is what the directives of a line mean for a finding.
type silence int

const (
	absent        silence = iota // no directive names the check
	withoutReason                // one does, but gives no reason, so it has no effect
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
	text, _, _ = strings.Cut(text, "//") // what follows is a comment on the directive
	checks, reason, _ := strings.Cut(strings.TrimSpace(text), " ")
	line := linePosition{at.Filename, at.Line}
	d[line] = append(d[line], ignore{strings.Split(checks, ","), strings.TrimSpace(reason)})
}

// of returns what the directives mean for a finding of a check.
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
