package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEveryReplacementCompiles checks the types of each file without its safeguard: an entry whose
// replacement names what is not there any more takes nothing out.
func TestEveryReplacementCompiles(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]*modulePackages{}
	for _, s := range safeguards() {
		text, err := s.replacement(root)
		if err != nil {
			t.Error(err)
			continue
		}
		module, _ := moduleOf(root, filepath.Dir(s.file))
		if modules[module] == nil {
			modules[module] = listPackages(t, module)
		}
		if err := modules[module].check(filepath.Join(root, s.file), text); err != nil {
			t.Errorf("%q: its replacement does not compile: %v", s.name, err)
		}
	}
}

// modulePackages are the packages of a module, as they are compiled here.
type modulePackages struct {
	set     *token.FileSet
	exports map[string]string   // by import path: the file with what a package exports
	files   map[string][]string // by directory
	parsed  map[string]*ast.File
	from    types.Importer
}

func listPackages(t *testing.T, root string) *modulePackages {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,Standard", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	m := &modulePackages{set: token.NewFileSet(), exports: map[string]string{}, files: map[string][]string{}, parsed: map[string]*ast.File{}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
			Standard                bool
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		m.exports[p.ImportPath] = p.Export
		if !p.Standard {
			for _, name := range p.GoFiles {
				m.files[p.Dir] = append(m.files[p.Dir], filepath.Join(p.Dir, name))
			}
		}
	}
	m.from = importer.ForCompiler(m.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(m.exports[path]) })
	return m
}

// check checks the types of the package of a file, with that text in its place. A file that is not
// compiled on this system is parsed only.
func (m *modulePackages) check(changed string, text []byte) error {
	var list []*ast.File
	for _, name := range m.files[filepath.Dir(changed)] {
		if name == changed {
			continue
		}
		if m.parsed[name] == nil {
			file, err := parser.ParseFile(m.set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			m.parsed[name] = file
		}
		list = append(list, m.parsed[name])
	}
	file, err := parser.ParseFile(m.set, changed, text, parser.SkipObjectResolution)
	if err != nil || len(list) == len(m.files[filepath.Dir(changed)]) {
		return err
	}
	conf := types.Config{Importer: m.from}
	_, err = conf.Check(file.Name.Name, m.set, append(list, file), nil)
	return err
}
