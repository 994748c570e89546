package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sourcePackage is a package as it is compiled here, and its mutants.
type sourcePackage struct {
	root, path string // path is below the root, as in ./session
	dir        string
	exports    map[string]string // by import path: the file with what a package exports
	set        *token.FileSet
	files      []*sourceFile
	info       *types.Info
	name       string

	mutants   []*mutant
	chosen    []*mutant         // those to be run
	rewritten map[string]string // by file: the source with all mutants
}

type sourceFile struct {
	name   string // without its directory
	text   []byte
	syntax *ast.File
	marks  fileMarks
}

// mutant is one change of the source.
type mutant struct {
	id       int // from 1 in each package
	file     string
	line     int
	function string
	change   string

	mark *replacement // what a mark describes, or nil
	same *sameMark    // what accepts its survival, or nil

	result result
	killer string // the test that failed
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s", m.file, m.line, m.function, m.change)
}

// listPackages returns the paths of packages below the root, each as in ./session.
func listPackages(ctx context.Context, root string, patterns []string) ([]string, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{.Dir}}", "--"}, patterns...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages %s: %w", strings.Join(patterns, " "), err)
	}
	var paths []string
	for dir := range strings.Lines(string(out)) {
		below, err := filepath.Rel(root, strings.TrimSpace(dir))
		if err != nil {
			return nil, err
		}
		paths = append(paths, "./"+filepath.ToSlash(below))
	}
	return paths, nil
}

// loadPackage parses a package, and checks its types.
func loadPackage(ctx context.Context, root, path string) (*sourcePackage, error) {
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", "--", "cmp", "os", "strconv", "sync/atomic", path)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s and what it imports: %w", path, err)
	}
	p := &sourcePackage{root: root, path: path, set: token.NewFileSet(), exports: map[string]string{}}
	var last listedPackage // the package itself comes behind what it imports
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var next listedPackage
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		p.exports[next.ImportPath], last = next.Export, next
	}
	p.dir = last.Dir
	for _, name := range last.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			return nil, err
		}
		if err := p.add(name, text); err != nil {
			return nil, err
		}
	}
	p.info, err = p.checkTypes()
	return p, err
}

type listedPackage struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

// add parses a file of the package.
func (p *sourcePackage) add(name string, text []byte) error {
	syntax, err := parser.ParseFile(p.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &sourceFile{name: name, text: text, syntax: syntax}
	if f.marks, err = readMarks(p.set, f); err != nil {
		return err
	}
	p.files, p.name = append(p.files, f), syntax.Name.Name
	return nil
}

func (p *sourcePackage) checkTypes() (*types.Info, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(p.exports[path])
	})}
	var syntax []*ast.File
	for _, f := range p.files {
		syntax = append(syntax, f.syntax)
	}
	_, err := conf.Check(p.path, p.set, syntax, info)
	return info, err
}

// mutate makes the mutants that are chosen, and the source that has them all.
func (p *sourcePackage) mutate(choose chooser) error {
	p.rewritten = map[string]string{}
	for _, f := range p.files {
		w := &rewriter{pkg: p, file: f, choose: choose}
		text, err := w.rewriteFile()
		if err != nil {
			return err
		}
		p.rewritten[f.name] = text
	}
	p.rewritten["chosen_mutant.go"] = fmt.Sprintf("package %s\n%s\nvar mut_reached [%d]atomic.Bool\n", p.name, chooserSource, len(p.mutants)+1)
	slices.SortStableFunc(p.mutants, func(a, b *mutant) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return nil
}

// writeOverlay writes the source with all mutants into a directory, and the file that tells the go
// command to compile it in place of the source.
func (p *sourcePackage) writeOverlay(dir string) (file string, err error) {
	replace := map[string]string{}
	for name, text := range p.rewritten {
		replaced := filepath.Join(dir, name)
		if err := os.WriteFile(replaced, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(p.dir, name)] = replaced
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}
