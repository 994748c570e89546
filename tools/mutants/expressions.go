package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// assignOfExpression gives roles to the parts of an expression.
func (w *rewriter) assignOfExpression(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		switch n.Op { // a constant operand drops the operand, or is what a constant expression is
		case token.LAND:
			w.roles[n.X] |= alwaysTrue
			w.roles[n.Y] |= alwaysTrue
		case token.LOR:
			w.roles[n.X] |= alwaysFalse
			w.roles[n.Y] |= alwaysFalse
		}
	case *ast.CallExpr:
		for _, a := range n.Args {
			if isTrueOrFalse(a) {
				w.roles[a] |= opposite
			}
		}
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				w.values([]ast.Expr{kv.Value})
				if w.hasFields(n) {
					w.roles[kv.Value] |= zeroable
				}
			}
		}
	}
}

// values gives roles to expressions whose values are kept.
func (w *rewriter) values(list []ast.Expr) {
	for _, e := range list {
		switch inner := ast.Unparen(e).(type) {
		case *ast.BinaryExpr, *ast.CallExpr:
			w.roles[e] |= alwaysTrue | alwaysFalse
		case *ast.UnaryExpr:
			if inner.Op == token.NOT {
				w.roles[e] |= alwaysTrue | alwaysFalse
			}
		case *ast.Ident:
			if isTrueOrFalse(inner) {
				w.roles[e] |= opposite
			}
		}
		if !w.isBool(e) {
			delete(w.roles, e)
		}
	}
}

func isTrueOrFalse(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && (name.Name == "true" || name.Name == "false")
}

func (w *rewriter) isBool(e ast.Expr) bool {
	t := w.pkg.info.Types[e].Type
	return t == types.Typ[types.Bool] || t == types.Typ[types.UntypedBool]
}

// isConstant reports whether nothing in a node can have mutants: constants and types.
func (w *rewriter) isConstant(n ast.Node) bool {
	e, ok := n.(ast.Expr)
	tv := w.pkg.info.Types[e]
	return ok && (tv.Value != nil || tv.IsType())
}

// hasFields reports whether a literal is of a struct whose fields may be zero. Of an error only its text
// and what it tells of would be.
func (w *rewriter) hasFields(literal *ast.CompositeLit) bool {
	t := w.pkg.info.Types[literal].Type
	if named, ok := types.Unalias(t).(*types.Named); ok {
		full := named.Obj().Pkg().Name() + "." + named.Obj().Name()
		if full == "api.Error" || full == "refusal.Refusal" {
			return false
		}
	}
	_, ok := t.Underlying().(*types.Struct)
	return ok
}

func isZero(v constant.Value) bool {
	switch {
	case v == nil:
		return false
	case v.Kind() == constant.Bool:
		return !constant.BoolVal(v)
	case v.Kind() == constant.String:
		return constant.StringVal(v) == ""
	}
	return constant.Sign(v) == 0
}

// expression returns an expression that mutants may make constant, or zero.
func (w *rewriter) expression(n ast.Node, text string) string {
	e, ok := n.(ast.Expr)
	if !ok {
		return text
	}
	may := w.roles[e]
	if may&opposite != 0 {
		if id := w.change(e, "opposite"); id != 0 {
			return fmt.Sprintf("mut_pick(%d, %s, !%s)", id, text, text)
		}
	}
	if w.isConstant(e) || !w.isBool(e) {
		if may&zeroable != 0 && w.canBeZero(e) {
			if id := w.change(e, "zero"); id != 0 {
				return fmt.Sprintf("mut_zero(%d, %s)", id, text)
			}
		}
		return text
	}
	if may&alwaysFalse != 0 {
		if id := w.change(e, "false"); id != 0 {
			text = fmt.Sprintf("(!mut_on(%d) && (%s))", id, text)
		}
	}
	if may&alwaysTrue != 0 {
		if id := w.change(e, "true"); id != 0 {
			text = fmt.Sprintf("(mut_on(%d) || (%s))", id, text)
		}
	}
	return text
}

func (w *rewriter) canBeZero(e ast.Expr) bool {
	tv := w.pkg.info.Types[e]
	if tv.Value != nil || tv.IsNil() || tv.Type == nil {
		return false
	}
	basic, ok := tv.Type.(*types.Basic)
	return !ok || basic.Info()&types.IsUntyped == 0
}

// functionOf returns the function that calculates what an operator does, or what its mutant does.
func functionOf(op token.Token) (name string, known bool) {
	name, known = map[token.Token]string{
		token.LSS: "mut_less", token.LEQ: "mut_less_equal", token.GTR: "mut_greater", token.GEQ: "mut_greater_equal",
		token.ADD: "mut_add", token.SUB: "mut_sub", token.MUL: "mut_mul", token.QUO: "mut_quo", token.REM: "mut_rem",
		token.AND: "mut_and", token.OR: "mut_or", token.XOR: "mut_xor", token.AND_NOT: "mut_and_not",
	}[op]
	return name, known
}

// binary returns a binary expression, whose operator a mutant may replace.
func (w *rewriter) binary(b *ast.BinaryExpr) string {
	function, known := functionOf(b.Op)
	basic, ok := types.Unalias(w.pkg.info.Types[b.X].Type).Underlying().(*types.Basic)
	comparison := strings.HasPrefix(b.Op.String(), "<") || strings.HasPrefix(b.Op.String(), ">")
	if !known || !ok || !comparison && basic.Info()&types.IsInteger == 0 {
		return w.inside(b)
	}
	id := w.change(b, "operator "+b.Op.String())
	if id == 0 {
		return w.inside(b)
	}
	x, y := w.rewrite(b.X), w.rewrite(b.Y)
	left, right := w.between(b.X.End(), b.OpPos), w.between(b.OpPos+token.Pos(len(b.Op.String())), b.Y.Pos())
	return fmt.Sprintf("%s(%d, %s%s,%s%s)", function, id, x, left, right, y)
}

// call returns a call. Of min and max, mutants take one bound.
func (w *rewriter) call(c *ast.CallExpr) string {
	name, ok := c.Fun.(*ast.Ident)
	if !ok || name.Name != "min" && name.Name != "max" || len(c.Args) != 2 {
		return w.inside(c)
	}
	if _, builtin := w.pkg.info.Uses[name].(*types.Builtin); !builtin {
		return w.inside(c)
	}
	first, second := w.change(c, "first bound of"), w.change(c, "second bound of")
	if first == 0 || second == 0 {
		return w.inside(c)
	}
	return fmt.Sprintf("mut_%s(%d, %d, %s, %s)", name.Name, first, second, w.rewrite(c.Args[0]), w.rewrite(c.Args[1]))
}
