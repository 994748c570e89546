package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// rewriter writes a file again, with its mutants in it.
type rewriter struct {
	pkg    *sourcePackage
	file   *sourceFile
	choose chooser

	function string
	same     *sameMark        // of the whole function
	results  []*ast.FieldList // of the functions around, the innermost last
	roles    map[ast.Node]role
}

// chooser decides whether a mutant is made.
type chooser func(m *mutant) bool

// role is what mutants may do with a node because of where it is.
type role int

const (
	removable   role = 1 << iota // a statement
	alwaysTrue                   // an expression
	alwaysFalse                  // an expression
	zeroable                     // the value of a field
	opposite                     // true or false
)

// stays are functions whose calls are not removed: without them tests hang, or only the log is
// another.
var stays = regexp.MustCompile(`(?i)^(r?lock|r?unlock|done|stop|close|panic|debug|info|warn|error|log|logattrs|inc|observe)$`)

// rewriteFile writes all functions of the file again.
func (w *rewriter) rewriteFile() (string, error) {
	var out strings.Builder
	at := w.file.syntax.FileStart
	for _, d := range w.file.syntax.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		w.function, w.roles = nameOf(f), map[ast.Node]role{}
		if w.same = w.file.marks.same[w.line(f.Pos())]; w.same != nil {
			w.same.whole = true
		}
		out.WriteString(w.between(at, f.Body.Lbrace+1))
		out.WriteString(w.replaced(f))
		if f.Name.Name == "String" || f.Name.Name == "Error" { // texts for people
			at = f.Body.Lbrace + 1
			continue
		}
		w.results = []*ast.FieldList{f.Type.Results}
		out.WriteString(strings.TrimPrefix(w.rewrite(f.Body), "{"))
		at = f.Body.End()
	}
	out.WriteString(w.between(at, w.file.syntax.FileEnd))
	for line, list := range w.file.marks.replacements {
		for _, r := range list {
			if !r.used {
				return "", fmt.Errorf("%s/%s:%d: a mark can replace lines of functions only", w.pkg.path, w.file.name, line)
			}
		}
	}
	return out.String(), nil
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// replaced returns the mutants that marks describe: the whole function is there once more for each, with
// another line in it.
func (w *rewriter) replaced(f *ast.FuncDecl) string {
	var out strings.Builder
	for line := w.line(f.Pos()) + 1; line < w.line(f.Body.Rbrace); line++ {
		for _, r := range w.file.marks.replacements[line] {
			r.used = true
			start := w.pkg.set.File(f.Pos()).LineStart(line)
			end := w.pkg.set.File(f.Pos()).LineStart(line+1) - 1
			id := w.mutant(&mutant{line: line, change: "mark: " + r.text, mark: r})
			if id == 0 {
				continue
			}
			body := w.between(f.Body.Lbrace, start) + r.text + w.between(end, f.Body.Rbrace) + "\n}()"
			if f.Type.Results != nil {
				fmt.Fprintf(&out, " if mut_on(%d) { return func() %s %s }; ", id, w.parenthesized(f.Type.Results), body)
			} else {
				fmt.Fprintf(&out, " if mut_on(%d) { func() %s; return }; ", id, body)
			}
		}
	}
	return out.String()
}

func (w *rewriter) parenthesized(results *ast.FieldList) string {
	text := w.between(results.Pos(), results.End())
	if strings.HasPrefix(text, "(") {
		return text
	}
	return "(" + text + ")"
}

// mutant adds a mutant and returns its number, or 0 if none is made.
func (w *rewriter) mutant(m *mutant) int {
	m.file, m.function = w.file.name, w.function
	if m.mark == nil {
		if m.same = w.file.marks.same[m.line]; m.same == nil {
			m.same = w.same
		}
	}
	if !w.choose(m) {
		return 0
	}
	m.id = len(w.pkg.mutants) + 1
	w.pkg.mutants = append(w.pkg.mutants, m)
	return m.id
}

// change adds a mutant of a node, which a few words describe.
func (w *rewriter) change(n ast.Node, what string) int {
	text := strings.Join(strings.Fields(w.between(n.Pos(), n.End())), " ")
	if short := []rune(text); len(short) > 80 {
		text = string(short[:79]) + "…"
	}
	return w.mutant(&mutant{line: w.line(n.Pos()), change: what + ": " + text})
}

func (w *rewriter) line(at token.Pos) int { return w.pkg.set.Position(at).Line }

// between returns the source between two positions.
func (w *rewriter) between(from, to token.Pos) string {
	file := w.pkg.set.File(w.file.syntax.FileStart)
	return string(w.file.text[file.Offset(from):file.Offset(to)])
}

// rewrite returns the source of a node with the mutants of it and of all that is in it.
func (w *rewriter) rewrite(n ast.Node) string {
	if w.assignRoles(n); w.isConstant(n) {
		return w.expression(n, w.between(n.Pos(), n.End()))
	}
	switch n := n.(type) {
	case *ast.FuncLit:
		w.results = append(w.results, n.Type.Results)
		defer func() { w.results = w.results[:len(w.results)-1] }()
		return w.inside(n)
	case *ast.BinaryExpr:
		return w.expression(n, w.binary(n))
	case *ast.CallExpr:
		return w.expression(n, w.call(n))
	case ast.Expr:
		return w.expression(n, w.inside(n))
	case ast.Stmt:
		return w.statement(n, w.inside(n))
	}
	return w.inside(n)
}

// inside returns the source of a node, with the nodes in it rewritten.
func (w *rewriter) inside(n ast.Node) string {
	var children []ast.Node
	ast.Inspect(n, func(c ast.Node) bool {
		if _, comment := c.(*ast.CommentGroup); c != nil && c != n && !comment {
			children = append(children, c)
		}
		return c == n
	})
	slices.SortFunc(children, func(a, b ast.Node) int { return cmp.Compare(a.Pos(), b.Pos()) })
	var out strings.Builder
	at := n.Pos()
	for _, c := range children {
		out.WriteString(w.between(at, c.Pos()))
		out.WriteString(w.rewrite(c))
		at = c.End()
	}
	out.WriteString(w.between(at, n.End()))
	return out.String()
}

// assignRoles gives roles to the nodes in a node.
func (w *rewriter) assignRoles(n ast.Node) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		w.removableOf(n.List)
	case *ast.CommClause:
		w.removableOf(n.Body)
	case *ast.CaseClause:
		w.removableOf(n.Body)
	case *ast.FuncDecl, *ast.FuncLit:
	case *ast.IfStmt:
		w.roles[n.Cond] |= alwaysTrue | alwaysFalse
	case *ast.ForStmt:
		if n.Cond != nil {
			w.roles[n.Cond] |= alwaysFalse // a loop that never ends shows nothing
		}
	case *ast.SwitchStmt:
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				if n.Tag == nil {
					w.roles[e] |= alwaysTrue | alwaysFalse
				}
			}
		}
	case *ast.AssignStmt:
		w.values(n.Rhs)
	case *ast.ValueSpec:
		w.values(n.Values)
	case *ast.ReturnStmt:
		if !w.failed(n) {
			w.values(n.Results)
		}
	default:
		w.assignOfExpression(n)
	}
}

func (w *rewriter) removableOf(list []ast.Stmt) {
	for _, s := range list {
		w.roles[s] |= removable
	}
}

// failed reports whether a return gives an error that is not nil: nobody reads the other results.
func (w *rewriter) failed(r *ast.ReturnStmt) bool {
	if len(r.Results) < 2 {
		return false
	}
	last := w.pkg.info.Types[r.Results[len(r.Results)-1]]
	if last.IsNil() || last.Type == nil {
		return false
	}
	failure := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return types.Implements(last.Type, failure)
}

// statement returns a statement, which a mutant may remove.
func (w *rewriter) statement(s ast.Stmt, text string) string {
	if w.roles[s]&removable == 0 {
		return text
	}
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return w.returns(s, text)
	case *ast.ExprStmt:
		if c, ok := s.X.(*ast.CallExpr); !ok || stays.MatchString(calledName(c)) {
			return text
		}
	case *ast.DeferStmt:
		if stays.MatchString(calledName(s.Call)) {
			return text
		}
	case *ast.AssignStmt:
		blank := !slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool {
			name, ok := e.(*ast.Ident)
			return !ok || name.Name != "_"
		})
		if s.Tok == token.DEFINE || blank {
			return text
		}
	case *ast.BranchStmt:
		if s.Tok != token.BREAK && s.Tok != token.CONTINUE {
			return text
		}
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
	default:
		return text
	}
	if id := w.change(s, "removed"); id != 0 {
		return fmt.Sprintf("if !mut_on(%d) { %s }", id, text)
	}
	return text
}

// calledName is the last name of what is called: Lock, for s.mu.Lock().
func calledName(c *ast.CallExpr) string {
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// returns returns a return statement, in the place of which a mutant may return zero values, or go on.
func (w *rewriter) returns(s *ast.ReturnStmt, text string) string {
	results := w.results[len(w.results)-1]
	if results == nil {
		if id := w.change(s, "removed"); id != 0 {
			return fmt.Sprintf("if !mut_on(%d) { return }", id)
		}
		return text
	}
	if len(s.Results) > 0 && !slices.ContainsFunc(s.Results, w.isInteresting) {
		return text
	}
	var zeros []string
	for _, f := range results.List {
		for range max(1, len(f.Names)) {
			zeros = append(zeros, "*new("+w.between(f.Type.Pos(), f.Type.End())+")")
		}
	}
	if id := w.change(s, "zero values"); id != 0 {
		return fmt.Sprintf("if mut_on(%d) { return %s }; %s", id, strings.Join(zeros, ", "), text)
	}
	return text
}

// isInteresting reports whether a result is another than zero, and has no mutants of its own that make
// it so.
func (w *rewriter) isInteresting(e ast.Expr) bool {
	tv := w.pkg.info.Types[e]
	if literal, ok := e.(*ast.CompositeLit); ok && len(literal.Elts) == 0 {
		return false
	}
	return !tv.IsNil() && !isZero(tv.Value) && w.roles[e]&(alwaysFalse|opposite) == 0
}
