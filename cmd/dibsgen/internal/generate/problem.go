package generate

import (
	"cmp"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"slices"
)

// A Problem is why nothing is generated, or a Notice, and where.
type Problem struct {
	At   token.Position
	Text string
}

// problems collects a package's problems.
type problems struct {
	set  *token.FileSet
	list []Problem
}

func (p *problems) add(at token.Pos, format string, args ...any) {
	p.addAt(p.set.Position(at), format, args...)
}

func (p *problems) addAt(at token.Position, format string, args ...any) {
	p.list = append(p.list, Problem{At: at, Text: fmt.Sprintf(format, args...)})
}

// addSyntax adds the parser's errors.
func (p *problems) addSyntax(err error) {
	var list scanner.ErrorList
	if !errors.As(err, &list) {
		p.addAt(token.Position{}, "%v", err)
	}
	for _, one := range list {
		p.addAt(one.Pos, "%s", one.Msg)
	}
}

// SortProblems sorts by file, line and column, and removes duplicates: two interfaces may
// have the same directive.
func SortProblems(list []Problem) []Problem {
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.At.Filename, b.At.Filename), cmp.Compare(a.At.Line, b.At.Line),
			cmp.Compare(a.At.Column, b.At.Column), cmp.Compare(a.Text, b.Text))
	})
	return slices.CompactFunc(list, func(a, b Problem) bool {
		return a.Text == b.Text && a.At.Filename == b.At.Filename && a.At.Line == b.At.Line && a.At.Column == b.At.Column
	})
}
