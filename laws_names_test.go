package chubby_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxExported is how many names a package may export. What it counts are
// declarations that a reader of its documentation meets: a type, a function, and a
// group of constants or variables, which is one table, count one each. The constants
// of a type that the package declares, and the methods and fields of a type, belong to
// the type. So do the alternatives of a union: the types of which a struct has a pointer each, under their
// own names, and nothing else, as raftfsm.Command has.
const maxExported = 40

// reviewed are the packages whose exported names are listed one by one instead: users
// write against them, and what they export is kept.
func reviewed() []string { return []string{"api", "client", "client/clientprom", "client/recipe"} }

// lawExported: other packages may come to depend on every exported name. A long list is
// either several packages, or names that only the package itself needs.
func lawExported(t *testing.T, files []source) {
	for dir, names := range exportedNames(files) {
		if slices.Contains(reviewed(), dir) {
			continue
		}
		if n := len(names.counted); n > maxExported {
			t.Errorf("package %q exports %d names; at most %d: unexport what no other package needs, or move what is another idea: %s",
				dir, n, maxExported, strings.Join(slices.Sorted(maps.Keys(names.counted)), ", "))
		}
	}
}

// lawReviewed: a name that users can write is a promise. It is made on purpose, with a
// line in testdata/exported.txt of its package.
func lawReviewed(t *testing.T, files []source) {
	exported := exportedNames(files)
	for _, dir := range reviewed() {
		name := path.Join(dir, "testdata", "exported.txt")
		data, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		var listed []string
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				listed = append(listed, line)
			}
		}
		if !slices.IsSorted(listed) {
			t.Errorf("%s is not sorted", name)
		}
		for one := range exported[dir].all {
			if !slices.Contains(listed, one) {
				t.Errorf("%s exports %s, which is not in %s: unexport it, or add the line, if users need it and it can be kept", dir, one, name)
			}
		}
		for _, one := range listed {
			if !exported[dir].all[one] {
				t.Errorf("%s has %s, which %s does not export: users may depend on it; if it is to go, say so in the changelog and take the line out", name, one, dir)
			}
		}
	}
}

// exported is what one package exports.
type exported struct {
	counted map[string]bool     // as maxExported counts
	all     map[string]bool     // each name, methods and fields with their type
	embeds  map[string][]string // by type, the types that it embeds and that are not exported

	alternatives map[string]bool // the types that count with a union
}

// exportedNames returns, by directory, what each package exports.
func exportedNames(files []source) map[string]exported {
	types := map[string]map[string]bool{} // of each package, exported or not
	list := map[string]exported{}
	for _, f := range files {
		if f.test {
			continue
		}
		if types[f.dir] == nil {
			types[f.dir] = map[string]bool{}
			list[f.dir] = exported{counted: map[string]bool{}, all: map[string]bool{}, embeds: map[string][]string{}, alternatives: map[string]bool{}}
		}
		for _, decl := range f.ast.Decls {
			if group, ok := decl.(*ast.GenDecl); ok && group.Tok == token.TYPE {
				for _, spec := range group.Specs {
					types[f.dir][spec.(*ast.TypeSpec).Name.Name] = true
				}
			}
		}
	}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				list[f.dir].function(decl)
			case *ast.GenDecl:
				if decl.Tok == token.TYPE {
					list[f.dir].types(decl)
				} else {
					list[f.dir].values(decl, types[f.dir])
				}
			}
		}
	}
	for _, one := range list {
		one.promote()
		for name := range one.alternatives {
			delete(one.counted, name)
		}
	}
	return list
}

// function adds a function, or a method of an exported type.
func (e exported) function(decl *ast.FuncDecl) {
	if !decl.Name.IsExported() {
		return
	}
	if decl.Recv == nil {
		e.counted[decl.Name.Name], e.all[decl.Name.Name] = true, true
		return
	}
	e.all[receiver(decl)+"."+decl.Name.Name] = true
}

// embed notes that a type embeds another.
func (e exported) embed(outer, inner string) {
	if ast.IsExported(inner) {
		e.all[outer+"."+inner] = true
	} else {
		e.embeds[outer] = append(e.embeds[outer], inner)
	}
}

// promote gives exported types what they have of embedded types that are not exported,
// and forgets the members of the latter: users reach them in no other way.
func (e exported) promote() {
	for _, name := range slices.Collect(maps.Keys(e.all)) {
		outer, member, _ := strings.Cut(name, ".")
		if ast.IsExported(outer) {
			continue
		}
		delete(e.all, name)
		for user := range e.embeds {
			if ast.IsExported(user) && e.contains(user, outer) {
				e.all[user+"."+member] = true
			}
		}
	}
}

// contains reports whether a type embeds another, or a type that does.
func (e exported) contains(outer, inner string) bool {
	for _, one := range e.embeds[outer] {
		if one == inner || e.contains(one, inner) {
			return true
		}
	}
	return false
}

// types adds types, and the fields of structs, embedded ones too, and the methods of interfaces.
func (e exported) types(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		spec := spec.(*ast.TypeSpec)
		if spec.Name.IsExported() {
			e.counted[spec.Name.Name], e.all[spec.Name.Name] = true, true
		}
		members := &ast.FieldList{}
		switch of := spec.Type.(type) {
		case *ast.StructType:
			members = of.Fields
			for _, name := range alternatives(of) {
				e.alternatives[name] = true
			}
		case *ast.InterfaceType:
			members = of.Methods
		}
		for _, field := range members.List {
			if len(field.Names) == 0 {
				e.embed(spec.Name.Name, embedded(field.Type))
			}
			for _, name := range field.Names {
				if name.IsExported() {
					e.all[spec.Name.Name+"."+name.Name] = true
				}
			}
		}
	}
}

// alternatives returns the types of a struct that is a union of them, nil of any other.
func alternatives(of *ast.StructType) (names []string) {
	for _, field := range of.Fields.List {
		pointer, ok := field.Type.(*ast.StarExpr)
		if !ok || len(field.Names) != 1 {
			return nil
		}
		if to, ok := pointer.X.(*ast.Ident); !ok || to.Name != field.Names[0].Name {
			return nil
		}
		names = append(names, field.Names[0].Name)
	}
	return names
}

// values adds a group of constants or variables.
func (e exported) values(decl *ast.GenDecl, types map[string]bool) {
	group, of := "", "" // the first name that counts; the type of the constants
	for _, spec := range decl.Specs {
		spec, ok := spec.(*ast.ValueSpec)
		if !ok {
			return // an import
		}
		if spec.Type != nil || spec.Values != nil {
			of = ""
			if name, ok := spec.Type.(*ast.Ident); ok && decl.Tok == token.CONST {
				of = name.Name
			}
		}
		for _, name := range spec.Names {
			if !name.IsExported() {
				continue
			}
			e.all[name.Name] = true
			if group == "" && !types[of] {
				group = name.Name
			}
		}
	}
	if group != "" {
		e.counted[group] = true
	}
}

// receiver returns the name of a method's type.
func receiver(decl *ast.FuncDecl) string { return embedded(decl.Recv.List[0].Type) }

// embedded returns the name of the field that an embedded type makes.
func embedded(of ast.Expr) string {
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.SelectorExpr:
		return of.Sel.Name
	}
	return ""
}
