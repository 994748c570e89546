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
	other := "" // the module below the root that the walk is in
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != "." {
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
	return slices.Contains([]string{"api", "refusal", "namespace", "session", "sequencer", "raftfsm"}, f.dir)
}

func TestSourceLaws(t *testing.T) {
	files := sources(t)
	for _, law := range []struct {
		name  string
		holds func(*testing.T, []source)
	}{
		{"size", lawSize},
		{"package docs", lawPackageDocs},
		{"no init, no mutable package variables", lawState},
		{"clocks", lawClocks},
		{"pure packages", lawPure},
		{"display times are not compared", lawSince},
		{"tests do not sleep", lawSleep},
		{"nothing is left undone", lawDone},
		{"references lead somewhere", lawReferences},
		{"raft hands nothing over by itself", lawHandOver},
	} {
		t.Run(law.name, func(t *testing.T) { law.holds(t, files) })
	}
}

// lawSize: in every lock service we read, the file that ran away was the one
// that nobody could review.
func lawSize(t *testing.T, files []source) {
	const mostFile, mostFunc = 600, 100
	for _, f := range files {
		if f.lines > mostFile {
			t.Errorf("%s has %d lines; at most %d: split it by idea", f.path, f.lines, mostFile)
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1
			if lines > mostFunc {
				t.Errorf("%s: %s has %d lines; at most %d: name its parts", f.at(fn), fn.Name.Name, lines, mostFunc)
			}
		}
	}
}

// lawPackageDocs: the first thing a newcomer reads is where it is looked for.
func lawPackageDocs(t *testing.T, files []source) {
	docs := map[string][]string{}
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
		if f.ast.Name.Name != "main" && path.Base(f.path) != "doc.go" {
			t.Errorf("%s: the package comment stands in doc.go, where readers look; move it there", f.path)
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
		{"api/event.go", "eventRows", "the kinds of events"},
		{"cell/refusal.go", "ErrRefused", "the error of a room below, for users"},
		{"raftfsm/codec.go", "entryCodec", "immutable, and dear to make"},
		{"raftfsm/level.go", "commandGates", "immutable, and asked for each command"},
		{"refusal/rows.go", "rows", "the causes"},
		{"internal/bootclock/bootclock_other.go", "origin", "where a clock counts from; all of a process must count from one moment"},
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

// lawClocks: two clocks in one process disagree, Go's own stops in suspend, and
// code that reads one cannot be tested at a moment of the test's choice. So the
// clock is read in few rooms and handed on as a function or as now.
func lawClocks(t *testing.T, files []source) {
	readers := []exempt{
		{"internal/bootclock", "", "the clock of replicas, clients and guardians"},
		{"cell/clock*.go", "", "the wall clock, for display"},
		{"cell/celltest", "", "it runs in synctest bubbles, where Go's own clock is the virtual one"},
		{"cell/internal/testbed", "", "as celltest does"},
		{"cmd/chubbyctl/clock.go", "Since", "for display: how long ago, by the wall clock"},
		{"cmd/chubbyctl/clock.go", "Now", "for display: when a line of watch was printed"},
		{"examples/primary/demo", "", "it shows how long things take, and waits for processes"},
		{"bench", "", "it measures how long things take, and decides nothing by it"},
		{"tools", "", "for those who develop Chubby; nothing of it runs in a cell or a client"},
	}
	reads := map[string][]string{
		"time":                  {"Now", "Since", "Until"},
		"golang.org/x/sys/unix": {"ClockGettime", "Gettimeofday", "Time", "Sysinfo"},
		"syscall":               {"ClockGettime", "Gettimeofday", "Time", "Sysinfo"},
	}
	for _, f := range files {
		if f.test {
			continue
		}
		f.uses(func(n ast.Node, importPath, name string) {
			if slices.Contains(reads[importPath], name) && !exempted(readers, f, name) {
				t.Errorf("%s: %s.%s reads a clock: take now as an argument, or the Clock of the Config", f.at(n), path.Base(importPath), name)
			}
			if importPath == "time" && name == "Sleep" && !exempted(readers, f, name) {
				t.Errorf("%s: time.Sleep cannot be cancelled: wait in a select with a timer and ctx.Done()", f.at(n))
			}
		})
	}
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

// lawSince: the "since" that people are shown is the wall clock of whichever
// master was in office. Nothing may be decided by it.
func lawSince(t *testing.T, files []source) {
	comparisons := []token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ}
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if slices.Contains(comparisons, n.Op) && (mentionsSince(n.X) || mentionsSince(n.Y)) {
					t.Errorf("%s: SinceUnix is compared: it is for display; decisions about time use the lease clock", f.at(n))
				}
			case *ast.CallExpr:
				if callee(n) == "cmp.Compare" && slices.ContainsFunc(n.Args, mentionsSince) {
					t.Errorf("%s: SinceUnix is compared: it is for display; order by a generation or an id", f.at(n))
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && mentionsSince(n.Tag) {
					t.Errorf("%s: SinceUnix is compared: it is for display; decisions about time use the lease clock", f.at(n))
				}
			}
			return true
		})
	}
}

func mentionsSince(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && (name.Name == "SinceUnix" || name.Name == "GetSinceUnix") {
			found = true
		}
		return !found
	})
	return found
}

// lawSleep: a test that sleeps is slow on a good day and wrong on a bad one. In
// a synctest bubble sleeping costs nothing and is exact; and an end-to-end test
// of real processes has no other clock. A file whose tests run in bubbles imports
// synctest, or calls the function inBubble of its package.
func lawSleep(t *testing.T, files []source) {
	endToEnd := []exempt{{"e2e", "", "real processes"}}
	for _, f := range files {
		if !f.test || f.imports["synctest"] == "testing/synctest" || callsInBubble(f) || exempted(endToEnd, f, "Sleep") {
			continue
		}
		f.uses(func(n ast.Node, importPath, name string) {
			if importPath == "time" && name == "Sleep" {
				t.Errorf("%s: time.Sleep in a test: wait for what is to happen (a channel, synctest.Wait), or pass now", f.at(n))
			}
		})
	}
}

func callsInBubble(f source) bool {
	found := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && callee(call) == "inBubble" {
			found = true
		}
		return !found
	})
	return found
}

// lawDone: what is not done is in an issue, where somebody will find it.
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
