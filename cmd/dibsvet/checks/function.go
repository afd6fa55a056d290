package checks

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// A function is a declaration or a literal that encloses a node.
type function struct {
	cursor inspector.Cursor
	typ    *ast.FuncType
	block  *ast.BlockStmt
}

// enclosingFunction returns the innermost function around a node.
func enclosingFunction(cursor inspector.Cursor) (function, bool) {
	for enclosing := range cursor.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		switch n := enclosing.Node().(type) {
		case *ast.FuncDecl:
			return function{enclosing, n.Type, n.Body}, n.Body != nil
		case *ast.FuncLit:
			return function{enclosing, n.Type, n.Body}, true
		}
	}
	return function{}, false
}

// scope returns the scope for the parameters and the body.
func (fn function) scope(info *types.Info) *types.Scope { return info.Scopes[fn.typ] }

func (fn function) signature(info *types.Info) *types.Signature {
	switch n := fn.cursor.Node().(type) {
	case *ast.FuncDecl:
		if declared, ok := info.Defs[n.Name].(*types.Func); ok {
			return declared.Signature()
		}
	case *ast.FuncLit:
		signature, _ := info.TypeOf(n).Underlying().(*types.Signature)
		return signature
	}
	return nil
}
