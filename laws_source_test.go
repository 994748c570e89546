package chubby_test

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// exempt is one place where a law gives way, and why.
type exempt struct {
	path string // a pattern of path.Match, or a directory and everything below it
	what string // what is allowed there; empty is everything
	why  string
}

func exempted(list []exempt, f source, what string) bool {
	return slices.ContainsFunc(list, func(e exempt) bool {
		matched, _ := path.Match(e.path, f.path)
		return (matched || under(f.path, e.path)) && (e.what == "" || e.what == what)
	})
}

func isPure(f source) bool {
	return slices.Contains([]string{"api", "refusal", "namespace", "session", "sequencer", "raftfsm", "cell/internal/master/tables"}, f.dir)
}

func TestSourceLaws(t *testing.T) {
	files := sources(t)
	for _, law := range []struct {
		name  string
		holds func(*testing.T, []source)
	}{
		{"size", lawSize},
		{"exported names", lawExported},
		{"reviewed names", lawReviewed},
		{"types", lawTypes},
		{"package docs", lawPackageDocs},
		{"no init, no mutable package variables", lawState},
		{"clocks", lawClocks},
		{"pure packages", lawPure},
		{"display times are not compared", lawSince},
		{"tests do not sleep", lawSleep},
		{"nothing is left undone", lawDone},
		{"references lead somewhere", lawReferences},
		{"no large files", lawTracked},
		{"raft hands nothing over by itself", lawHandOver},
		{"every RPC has a client", lawRPCs},
		{"every call has a class", lawCallClass},
		{"every event is posted", lawEvents},
		{"what is logged is explained", lawLogs},
		{"references run down", lawUpward},
		{"large types say why", lawLarge},
		{"lines fit", lawWide},
		{"names in comments exist", lawNamed},
		{"comments say who acts", lawWords},
	} {
		t.Run(law.name, func(t *testing.T) { law.holds(t, files) })
	}
}

// lawSize: in every lock service we read, the file that ran away was the one
// that nobody could review.
func lawSize(t *testing.T, files []source) {
	const maxFile, maxFunc = 400, 100
	for _, f := range files {
		if f.lines > maxFile {
			t.Errorf("%s has %d lines; at most %d: split it by idea", f.path, f.lines, maxFile)
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1
			if lines > maxFunc {
				t.Errorf("%s: %s has %d lines; at most %d: name its parts", f.at(fn), fn.Name.Name, lines, maxFunc)
			}
		}
	}
}

// lawPackageDocs: the first thing a newcomer reads is where it is looked for. A package of one file has it there: there is nowhere else to look.
func lawPackageDocs(t *testing.T, files []source) {
	docs, sizes := map[string][]string{}, map[string]int{}
	for _, f := range files {
		if !f.test {
			sizes[f.dir]++
		}
	}
	for _, f := range files {
		if f.test {
			continue
		}
		if _, ok := docs[f.dir]; !ok {
			docs[f.dir] = nil
		}
		if f.ast.Doc == nil {
			continue
		}
		docs[f.dir] = append(docs[f.dir], f.path)
		if f.ast.Name.Name != "main" && path.Base(f.path) != "doc.go" && sizes[f.dir] > 1 {
			t.Errorf("%s: the package comment stands in doc.go, where readers look, unless there is one file alone; move it there", f.path)
		}
		if slices.Contains(reviewed(), f.dir) && strings.Contains(strings.ToLower(f.ast.Doc.Text()), "mutex") {
			t.Errorf("%s: go doc shows this to users, who want a lock of a cell; the order of mutexes belongs into a comment apart from it", f.path)
		}
	}
	for dir, where := range docs {
		switch {
		case len(where) == 0:
			t.Errorf("package %q has no package comment: say in doc.go what idea it is, what rule it upholds, who may call it", dir)
		case len(where) > 1:
			t.Errorf("package %q has its package comment in %s: keep one", dir, strings.Join(where, " and "))
		}
	}
}

// lawState: what runs before main, or is shared by everything, cannot be
// tested, and not be run twice in one process as celltest does.
func lawState(t *testing.T, files []source) {
	// Values that nobody writes to; the law checks that nobody does.
	tables := []exempt{
		{"api/errors.go", "codeNames", "the names of the codes"},
		{"api/chubbypb/records.go", "pairs", "what is found out once of two types, and always the same"},
		{"api/event.go", "eventRows", "the kinds of events"},
		{"cell/start.go", "ErrRefused", "the error of a room below, for users"},
		{"misuse/kind.go", "rows", "the kinds of misuse"},
		{"raftfsm/codec.go", "entryCodec", "immutable, and dear to make"},
		{"refusal/rows.go", "rows", "the causes"},
		{"internal/bootclock/bootclock_other.go", "origin", "where a clock counts from; all of a process must count from one moment"},
		{"internal/supervise/signals_unix.go", "inherited", "what the process was started to ignore, which can be asked once"},
		{"cmd/*/version.go", "version", "set by the linker"},
	}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.Name == "init" && decl.Recv == nil {
					t.Errorf("%s: init(): wire it where main or a constructor can be read", f.at(decl))
				}
			case *ast.GenDecl:
				packageVars(f, decl, func(name *ast.Ident) {
					if !exempted(tables, f, name.Name) {
						t.Errorf("%s: package variable %s: make it a constant, a field or a function, or (a value that nobody writes to) name it in this law", f.at(name), name.Name)
					}
				})
			}
		}
		tableWrites(f, tables, func(n ast.Node, name string) {
			t.Errorf("%s: %s is written to; everybody shares it", f.at(n), name)
		})
	}
}

// packageVars calls found for each variable of a declaration that is not an
// error, a regular expression, a compile-time check or an embedded file.
func packageVars(f source, decl *ast.GenDecl, found func(*ast.Ident)) {
	if decl.Tok != token.VAR {
		return
	}
	constant := []string{"errors.New", "fmt.Errorf", "api.Errorf", "regexp.MustCompile"}
	for _, spec := range decl.Specs {
		spec := spec.(*ast.ValueSpec)
		for _, doc := range []*ast.CommentGroup{spec.Doc, decl.Doc} {
			if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
				return
			}
		}
		for i, name := range spec.Names {
			if name.Name == "_" || i < len(spec.Values) && slices.Contains(constant, callee(spec.Values[i])) {
				continue
			}
			found(name)
		}
	}
}

// tableWrites calls found where an exempted variable, or an element of it, is
// assigned to or deleted.
func tableWrites(f source, tables []exempt, found func(ast.Node, string)) {
	check := func(n ast.Node, target ast.Expr) {
		if index, ok := target.(*ast.IndexExpr); ok {
			target = index.X
		}
		name, ok := target.(*ast.Ident)
		if ok && slices.ContainsFunc(tables, func(e exempt) bool { return e.what == name.Name && path.Dir(e.path) == f.dir }) {
			found(n, name.Name)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, target := range n.Lhs {
					check(n, target)
				}
			}
		case *ast.CallExpr:
			if name := callee(n); (name == "delete" || name == "clear") && len(n.Args) > 0 {
				check(n, n.Args[0])
			}
		}
		return true
	})
}

// lawPure: five replicas that apply the same log must come out the same, and a
// lease must be testable at any instant. Timers, goroutines, locks and chance
// are for the rooms around.
func lawPure(t *testing.T, files []source) {
	yields := []exempt{
		{"sequencer", "sync.Mutex", "a Guard is asked by all requests of a server at once; the sequencers it judges are pure"},
	}
	impure := map[string][]string{
		"time":         {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
		"sync":         {"Mutex", "RWMutex", "Cond", "NewCond", "WaitGroup", "Map"},
		"math/rand":    nil,
		"math/rand/v2": nil,
		"crypto/rand":  nil,
	}
	for _, f := range files {
		if f.test || !isPure(f) {
			continue
		}
		f.uses(func(n ast.Node, importPath, name string) {
			names, listed := impure[importPath]
			what := path.Base(importPath) + "." + name
			if listed && (names == nil || slices.Contains(names, name)) && !exempted(yields, f, what) {
				t.Errorf("%s: %s in a pure package: take now or the value as an argument; locks and waiting belong to the caller", f.at(n), what)
			}
		})
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok && !exempted(yields, f, "go") {
				t.Errorf("%s: go in a pure package: what is pure has nothing to run beside itself", f.at(n))
			}
			return true
		})
	}
}

// lawDone: work that is left belongs in an issue, where others find it.
func lawDone(t *testing.T, files []source) {
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"} // in halves, so that this file passes
	for _, f := range files {
		for _, group := range f.ast.Comments {
			for _, mark := range marks {
				if strings.Contains(group.Text(), mark) {
					t.Errorf("%s: a comment says %s: do it, or open an issue", f.at(group), mark)
				}
			}
		}
		f.calls(func(call *ast.CallExpr, within []*ast.FuncType) {
			switch name := callee(call); {
			case name == "panic":
				if text, ok := call.Args[0].(*ast.BasicLit); ok && strings.Contains(strings.ToLower(text.Value), "to do") {
					t.Errorf("%s: a body is missing", f.at(call))
				}
			case strings.HasSuffix(name, ".Skip"), strings.HasSuffix(name, ".Skipf"), strings.HasSuffix(name, ".SkipNow"):
				if kind := paramType(within, strings.Split(name, ".")[0]); kind == "testing.T" || kind == "testing.B" || kind == "testing.TB" {
					t.Errorf("%s: a skipped test protects nothing: make it run, or delete it", f.at(call))
				}
			}
		})
	}
}
