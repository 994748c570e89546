package chubby_test

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The sketches of Go in the pages fit the packages: a name, an option or a result that has changed
// is found here. Longer blocks, in docs/sequencers.md and docs/testing.md, are code that tests run.
func TestSketchesOfPagesFitThePackages(t *testing.T) {
	packages := exportedPackages(t, "context", "fmt", "log/slog", "net/http", "time",
		"github.com/chubbylock/chubby/client/recipe/resolver", "github.com/chubbylock/chubby/client/recipe", "github.com/chubbylock/chubby/sequencer/seqhttp",
		"google.golang.org/grpc/credentials/insecure")
	for page, want := range map[string]int{"README.md": 2, "docs/comparison.md": 3, "docs/recipes.md": 15} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		blocks = slices.DeleteFunc(blocks, func(b []string) bool { return ofAnotherSystem.MatchString(b[1]) || aProgram.MatchString(b[1]) })
		if len(blocks) != want {
			t.Errorf("%s has %d blocks of Go about Chubby; this law expects %d", page, len(blocks), want)
		}
		for _, block := range blocks {
			for _, problem := range packages.problems(t, block[1]) {
				t.Errorf("%s: %v in\n%s", page, problem, block[1])
			}
		}
	}
}

// aProgram is a whole program, which e2e.TestREADMEProgram runs.
var aProgram = regexp.MustCompile(`^package main\n`)

var ofAnotherSystem = regexp.MustCompile(`^// (etcd|Consul|ZooKeeper)\n`)

// known is what a sketch may use without declaring it.
const known = `
var (
	ctx     context.Context
	c       *client.Client
	cfg     client.Config
	path    api.Path
	store   sequencer.Store
	handler http.Handler
)

type limits struct{ PerSecond int }
`

// theReaders are the functions in the sketches that the reader is to write.
var theReaders = regexp.MustCompile(`^undefined: (work|convert|compute|send|move|decode|use|add)$`)

type pagePackages struct {
	set     *token.FileSet
	exports map[string]string // by import path: the file with what the package exports
	from    types.Importer
}

// exportedPackages compiles packages, and all that they import.
func exportedPackages(t *testing.T, paths ...string) pagePackages {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	p := pagePackages{set: token.NewFileSet(), exports: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		importPath, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		p.exports[importPath] = file
	}
	p.from = importer.ForCompiler(p.set, "gc", func(importPath string) (io.ReadCloser, error) { return os.Open(p.exports[importPath]) })
	return p
}

// problems returns what the compiler would refuse, but for what a sketch may leave out: the use of its last variables,
// and the reader's own functions.
func (p pagePackages) problems(t *testing.T, code string) []error {
	t.Helper()
	code = strings.ReplaceAll(code, "…", "")
	if !strings.HasPrefix(code, "func ") {
		code = "func sketch() error {\n" + code + "\nreturn nil\n}\n"
	}
	code = known + code
	var imports strings.Builder
	for importPath := range p.exports {
		if used := regexp.MustCompile(`\b` + path.Base(importPath) + `\.[A-Z]`); importPath != "unsafe" && imported(importPath) && used.MatchString(code) {
			imports.WriteString("import \"" + importPath + "\"\n")
		}
	}
	file, err := parser.ParseFile(p.set, "", "package page\n"+imports.String()+code, 0)
	if err != nil {
		return []error{err}
	}
	var problems []error
	conf := types.Config{Importer: p.from, Error: func(err error) {
		var problem types.Error
		if errors.As(err, &problem) && (problem.Soft || theReaders.MatchString(problem.Msg)) {
			return
		}
		problems = append(problems, err)
	}}
	_, _ = conf.Check("page", p.set, []*ast.File{file}, nil) // Error has them all
	return problems
}

// imported reports whether sketches may use a package: those with these names only, as others have them too.
func imported(importPath string) bool {
	return strings.HasPrefix(importPath, "github.com/chubbylock/chubby/") && !strings.Contains(importPath, "/internal/") ||
		slices.Contains([]string{"context", "fmt", "log/slog", "net/http", "time", "google.golang.org/grpc", "google.golang.org/grpc/credentials/insecure"}, importPath)
}

// The file env of a replica may have the credentials of a bucket. What a page has people type must not put them on a command line, which every user of the machine sees.
func TestNoPagePutsAFileOnACommandLine(t *testing.T) {
	onTheLine := regexp.MustCompile("env [^\n|]*(\\$\\(|`)(cat|<)")
	for _, page := range passages(t, nil) {
		for _, line := range onTheLine.FindAllString(page.text, -1) {
			t.Errorf("%s: %q: have the shell read the file: set -a; . ./env", page.at, line)
		}
	}
}

// A module that nobody maintains any more, and that is needed all the same, is named in SECURITY.md, and no longer than it is needed.
func TestArchivedModulesAreNamed(t *testing.T) {
	needed, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{
		"github.com/boltdb/bolt", "github.com/coreos/etcd", "github.com/coreos/pkg", "github.com/golang/protobuf", "github.com/gogo/protobuf", "github.com/pkg/errors", "github.com/dgrijalva/jwt-go",
		"github.com/form3tech-oss/jwt-go", "github.com/square/go-jose", "gopkg.in/square/go-jose.v2", "gopkg.in/yaml.v2", "gopkg.in/yaml.v3", "github.com/mitchellh/mapstructure", "github.com/opentracing/opentracing-go",
	} {
		isNeeded := strings.Contains(string(needed), "\t"+module+" v")
		if isNamed := strings.Contains(string(page), "`"+module+"`"); isNeeded != isNamed {
			t.Errorf("%s: go.mod needs it: %v; SECURITY.md names it: %v", module, isNeeded, isNamed)
		}
	}
}
