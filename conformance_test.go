package chubby_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testNames is what the test files of one package declare: its test functions,
// and every string that can be the name of a subtest (the first argument of Run,
// a key of a map, the field "name" of a table's row).
type testNames struct {
	functions map[string]bool
	subtests  map[string]bool
}

// TestConformance checks that docs/conformance.md keeps its form: each row names
// a test that exists, or says why there is none. It reads the names from the
// syntax tree; the tests themselves are run by `go test ./...`, like all others,
// and none of them can be skipped (lawDone).
func TestConformance(t *testing.T) {
	page, err := os.ReadFile("docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]testNames{}
	for _, f := range sources(t) {
		if f.test && f.ours {
			declared[f.dir] = declared[f.dir].with(f.ast)
		}
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Example)[^`]*)`")
	packages, rows := map[string]bool{}, 0
	for number, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| The ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 2 {
			t.Errorf("docs/conformance.md:%d: %d columns; want what the paper says, and what shows it", number+1, len(cells))
			continue
		}
		matches := named.FindAllStringSubmatch(cells[1], -1)
		if quoted := strings.Count(cells[1], "Test") + strings.Count(cells[1], "Example"); quoted != len(matches) {
			t.Errorf("docs/conformance.md:%d: %d tests are mentioned, and %d of them are written as `package.TestName`", number+1, quoted, len(matches))
		}
		if len(matches) == 0 && !strings.HasPrefix(cells[1], "differently: ") && !strings.HasPrefix(cells[1], "nothing to test: ") && !strings.HasPrefix(cells[1], "not built: ") {
			t.Errorf("docs/conformance.md:%d: the row names no test, and does not say why", number+1)
		}
		for _, match := range matches {
			packages[match[1]] = true
			if missing := declared[match[1]].missing(match[2]); missing != "" {
				t.Errorf("docs/conformance.md:%d: %s has no test %s (%q is missing)", number+1, match[1], match[2], missing)
			}
		}
	}
	if want := 8; len(packages) < want || rows < 100 {
		t.Errorf("the page has %d rows that name tests of %d packages; want at least 100 and %d: has its form changed?", rows, len(packages), want)
	}
	t.Run("every case of the API's suite", func(t *testing.T) { everyCaseIsNamed(t, string(page)) })
}

// everyCaseIsNamed checks the other direction for e2e.TestAPI, whose cases are
// written for the page.
func everyCaseIsNamed(t *testing.T, page string) {
	files, groups := sources(t), map[string][]string{}
	for _, f := range files {
		if f.dir != "e2e" || !f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasSuffix(fn.Name.Name, "Cases") || fn.Name.Name == "apiCases" {
				continue
			}
			group := strings.TrimSuffix(fn.Name.Name, "Cases")
			ast.Inspect(fn, func(n ast.Node) bool {
				if pair, ok := n.(*ast.KeyValueExpr); ok {
					if key, ok := text(pair.Key); ok {
						groups[group] = append(groups[group], key)
					}
				}
				return true
			})
		}
	}
	if len(groups) < 6 {
		t.Fatalf("found %d groups of cases in e2e; want at least 6", len(groups))
	}
	prefix := map[string]string{"node": "nodes", "handle": "handles", "lock": "locks", "event": "events"}
	for group, cases := range groups {
		name := group
		if plural, ok := prefix[group]; ok {
			name = plural
		}
		slices.Sort(cases)
		for _, one := range cases {
			if full := "e2e.TestAPI/" + name + "/" + one; !strings.Contains(page, "`"+full+"`") {
				t.Errorf("%s is on no row of docs/conformance.md", full)
			}
		}
	}
}

// with adds the names that a file declares.
func (d testNames) with(file *ast.File) testNames {
	if d.functions == nil {
		d = testNames{functions: map[string]bool{}, subtests: map[string]bool{}}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				d.functions[n.Name.Name] = true
			}
		case *ast.CallExpr:
			if selector, ok := n.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Run" && len(n.Args) == 2 {
				d.subtest(n.Args[0])
			}
		case *ast.KeyValueExpr:
			d.subtest(n.Key)
			if field, ok := n.Key.(*ast.Ident); ok && field.Name == "name" {
				d.subtest(n.Value)
			}
		}
		return true
	})
	return d
}

func (d testNames) subtest(e ast.Expr) {
	if name, ok := text(e); ok {
		d.subtests[strings.ReplaceAll(name, " ", "_")] = true
	}
}

// missing returns the first part of a test's name that is declared nowhere.
func (d testNames) missing(name string) string {
	parts := strings.Split(name, "/")
	if !d.functions[parts[0]] {
		return parts[0]
	}
	for _, part := range parts[1:] {
		if !d.subtests[part] {
			return part
		}
	}
	return ""
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}
