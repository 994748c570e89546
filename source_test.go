package chubby_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file of the module, of the modules below it (tools, bench)
// too, whatever system it is built for.
type source struct {
	path    string // slash-separated, from the root
	dir     string // of path, "" for the root
	test    bool
	ours    bool // of this module, not of one below
	lines   int
	ast     *ast.File
	set     *token.FileSet
	imports map[string]string // by the name they have in the file
}

// sources parses every file that a person wrote.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	other := "" // the module below the root that the walk is in, which may have others in it
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "node_modules") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != "." && (other == "" || !under(name, other)) {
				other = name
			}
			return nil
		case path.Ext(name) != ".go":
			return nil
		}
		f, err := parseSource(name)
		if err != nil {
			return err
		}
		f.ours = other == "" || !under(name, other)
		if !ast.IsGenerated(f.ast) {
			list = append(list, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func parseSource(name string) (source, error) {
	f := source{path: name, test: strings.HasSuffix(name, "_test.go"), set: token.NewFileSet(), imports: map[string]string{}}
	if f.dir = path.Dir(name); f.dir == "." {
		f.dir = ""
	}
	var err error
	if f.ast, err = parser.ParseFile(f.set, name, nil, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return f, err
	}
	f.lines = f.set.File(f.ast.Pos()).LineCount()
	for _, spec := range f.ast.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		local := path.Base(importPath)
		if local == "v2" {
			local = path.Base(path.Dir(importPath))
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		f.imports[local] = importPath
	}
	return f, nil
}

// at says where a node is.
func (f source) at(n ast.Node) string { return f.set.Position(n.Pos()).String() }

// uses calls found for every mention of a name of another package.
func (f source) uses(found func(n ast.Node, importPath, name string)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if left, ok := selector.X.(*ast.Ident); ok {
			if importPath, ok := f.imports[left.Name]; ok {
				found(n, importPath, selector.Sel.Name)
			}
		}
		return true
	})
}

// calls calls found for every call with the functions it stands in, outermost
// first.
func (f source) calls(found func(call *ast.CallExpr, within []*ast.FuncType)) {
	var open []ast.Node
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if n == nil {
			open = open[:len(open)-1]
			return true
		}
		open = append(open, n)
		if call, ok := n.(*ast.CallExpr); ok {
			var within []*ast.FuncType
			for _, outer := range open {
				switch fn := outer.(type) {
				case *ast.FuncDecl:
					within = append(within, fn.Type)
				case *ast.FuncLit:
					within = append(within, fn.Type)
				}
			}
			found(call, within)
		}
		return true
	})
}

// paramType writes the type of the parameter of that name, of the innermost
// function that has one: "testing.T", whether it is a pointer or not. A rapid.T
// skips a draw, not a test.
func paramType(within []*ast.FuncType, name string) string {
	for _, fn := range slices.Backward(within) {
		for _, param := range fn.Params.List {
			if !slices.ContainsFunc(param.Names, func(n *ast.Ident) bool { return n.Name == name }) {
				continue
			}
			kind := param.Type
			if pointer, ok := kind.(*ast.StarExpr); ok {
				kind = pointer.X
			}
			if selector, ok := kind.(*ast.SelectorExpr); ok {
				if left, ok := selector.X.(*ast.Ident); ok {
					return left.Name + "." + selector.Sel.Name
				}
			}
			return ""
		}
	}
	return ""
}

// callee writes the function that an expression calls, "errors.New".
func callee(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if left, ok := fn.X.(*ast.Ident); ok {
			return left.Name + "." + fn.Sel.Name
		}
	}
	return ""
}
