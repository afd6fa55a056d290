package directive

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"strings"
)

// names contains the Go expressions at a text's beginning.
type names struct {
	expressions []Expression
	spread      bool // "..." follows the last expression
	end         int  // where the text after them begins
}

// scanNames reads Go expressions, separated by commas, up to the first word that cannot continue
// them: after an operand, another operand begins. This needs tokens. A blank can be within an
// expression, and "wait=3s" within a string.
func scanNames(text string, offset int) (names, *Error) {
	n := nameScanner{text: text, offset: offset, operandNext: true}
	file := token.NewFileSet().AddFile("", -1, len(text))
	n.file = file
	n.scanner.Init(file, []byte(text), n.scanFailed, 0)
	for n.err == nil && !n.done {
		n.next()
	}
	if n.err != nil {
		return names{}, n.err
	}
	return n.names, nil
}

type nameScanner struct {
	names
	text    string
	offset  int // the text's offset in its comment
	file    *token.File
	scanner scanner.Scanner

	start       int          // the current expression's start
	operandNext bool         // an operand begins with the next token
	open        []openedWith // brackets not yet closed
	previous    token.Token
	done        bool
	err         *Error
}

// openedWith is a bracket not yet closed.
type openedWith struct {
	close token.Token
	typ   bool // in a type such as []string: an operand follows its end
}

var closing = map[token.Token]token.Token{token.LPAREN: token.RPAREN, token.LBRACK: token.RBRACK, token.LBRACE: token.RBRACE}

func (n *nameScanner) scanFailed(at token.Position, message string) {
	if n.err == nil {
		n.err = fail(n.offset+at.Offset, "%s", message)
	}
}

// next reads a token.
func (n *nameScanner) next() {
	pos, tok, literal := n.scanner.Scan()
	at := n.file.Offset(pos)
	if n.err != nil {
		return
	}
	previous := n.previous
	n.previous = tok
	switch {
	case tok == token.EOF, tok == token.SEMICOLON && literal == "\n":
		n.finish(at)
	case closing[tok] != 0:
		n.open = append(n.open, openedWith{closing[tok], n.operandNext && tok == token.LBRACK})
	case tok == token.RPAREN, tok == token.RBRACK, tok == token.RBRACE:
		n.closeBracket(at, tok)
	case len(n.open) > 0: // the parser checks it
	case tok == token.COMMA:
		n.addExpression(at)
		n.start, n.operandNext = at+1, true
	case tok == token.ELLIPSIS:
		n.addExpression(at)
		n.spread = true
		n.finishAfterSpread()
	case tok == token.ASSIGN:
		n.failAtAssign(at, previous)
	case tok == token.IDENT, tok.IsLiteral(), tok.IsKeyword():
		n.operand(at, tok)
	case tok.IsOperator() && tok != token.DEFINE && tok != token.COLON && tok != token.SEMICOLON:
		n.operandNext = true
	default:
		n.err = fail(n.offset+at, "unexpected %s in the names", tok)
	}
}

func (n *nameScanner) closeBracket(at int, tok token.Token) {
	last := len(n.open) - 1
	if last < 0 || n.open[last].close != tok {
		n.err = fail(n.offset+at, "unexpected %s in the names", tok)
		return
	}
	n.operandNext = n.open[last].typ
	n.open = n.open[:last]
}

// operand reads an operand. An operand directly after another is the first word after the names.
func (n *nameScanner) operand(at int, tok token.Token) {
	switch {
	case tok == token.FUNC:
		n.err = fail(n.offset+at, noLiteral)
	case n.operandNext:
		n.operandNext = tok == token.MAP || tok == token.CHAN
	case at > 0 && n.text[at-1] != ' ' && n.text[at-1] != '\t':
		n.err = fail(n.offset+at, "unexpected %q after a name; join the parts of a name with +", firstWord(n.text[at:]))
	default:
		n.finish(at)
	}
}

// failAtAssign reports an option in the place for a name.
func (n *nameScanner) failAtAssign(at int, previous token.Token) {
	if word := strings.TrimSpace(n.text[n.start:at]); previous == token.IDENT && token.IsIdentifier(word) {
		n.err = fail(n.offset+n.start+strings.Index(n.text[n.start:], word), "option %q stands where a name is expected; the names come first", word)
		return
	}
	n.err = fail(n.offset+at, "unexpected = in the names")
}

func (n *nameScanner) finish(at int) {
	switch last := len(n.open) - 1; {
	case last >= 0:
		n.err = fail(n.offset+at, "missing %s in the names", n.open[last].close)
	default:
		n.addExpression(at)
		n.end, n.done = at, true
	}
}

// finishAfterSpread ends the names after "...".
func (n *nameScanner) finishAfterSpread() {
	pos, tok, literal := n.scanner.Scan()
	at := n.file.Offset(pos)
	switch {
	case n.err != nil:
	case tok == token.EOF, tok == token.SEMICOLON && literal == "\n", tok == token.IDENT:
		n.end, n.done = at, true
	default:
		n.err = fail(n.offset+at, "unexpected %s after ...", tok)
	}
}

// addExpression adds the expression ending before a position.
func (n *nameScanner) addExpression(end int) {
	if n.err != nil {
		return
	}
	text := n.text[n.start:end]
	at := n.offset + n.start + len(text) - len(strings.TrimLeft(text, " \t"))
	text = strings.TrimSpace(text)
	if text == "" {
		n.err = fail(at, "the name is missing; want a Go expression of type string")
		return
	}
	set := token.NewFileSet()
	expr, err := parser.ParseExprFrom(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		n.err = syntaxError(at, text, err)
		return
	}
	if literal := functionLiteral(expr); literal != nil {
		n.err = fail(at+set.Position(literal.Pos()).Offset, noLiteral)
		return
	}
	length := set.Position(expr.End()).Offset // without a comment after it
	n.expressions = append(n.expressions, Expression{Text: text[:length], Offset: at})
}

// syntaxError returns the parser's first error, with its place in the comment.
func syntaxError(at int, text string, err error) *Error {
	var list scanner.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		return fail(at+min(list[0].Pos.Offset, len(text)), "%s in the name %s", list[0].Msg, text)
	}
	return fail(at, "%v in the name %s", err, text)
}

const noLiteral = "a function literal in a name; declare the function and call it"

func functionLiteral(expr ast.Expr) (found ast.Node) {
	ast.Inspect(expr, func(n ast.Node) bool {
		if literal, ok := n.(*ast.FuncLit); ok {
			found = literal
		}
		return found == nil
	})
	return found
}
