package chubby_test

import (
	"go/ast"
	"testing"
)

// size is how large a type is: its fields, an embedded one counted once, and its methods.
type size struct{ fields, methods int }

// lawTypes: the master was one object once, with 26 fields and 93 methods, and nobody
// could say which of its fields a method needed. A type that acts holds one idea, and
// what it needs of others it has as a part. A type with few methods is a record, which
// may have as many fields as it describes.
func lawTypes(t *testing.T, files []source) {
	const maxFields, maxMethods, fewMethods = 12, 25, 5
	rooms := []string{"cell/internal/master", "cell/internal/master/tables", "client"}
	// What users hold has a method for each thing they can do, and is older than this law.
	// These may shrink, and not grow; but Client has got the short forms (Do, Get, Put, Txn and the like), which keep nothing of
	// their own, and which users look for beside Open.
	larger := map[string]size{
		"client.Handle":         {20, 43},
		"client.Client":         {15, 45},
		"client.CachingChecker": {13, 15},
		"client.locator":        {17, 25},
		"client.sessionState":   {20, 27},
	}
	for _, room := range rooms {
		for name, is := range typeSizes(files, room) {
			allowed := size{maxFields, maxMethods}
			if l, ok := larger[room+"."+name]; ok {
				allowed = l
				if is.fields <= maxFields && is.methods <= maxMethods {
					t.Errorf("%s.%s has %d fields and %d methods: it needs no exception in this law any more", room, name, is.fields, is.methods)
				}
			}
			if is.methods > fewMethods && is.fields > allowed.fields {
				t.Errorf("%s.%s has %d fields; at most %d: give what belongs together a type", room, name, is.fields, allowed.fields)
			}
			if is.methods > allowed.methods {
				t.Errorf("%s.%s has %d methods; at most %d: it is several types", room, name, is.methods, allowed.methods)
			}
		}
	}
}

// typeSizes returns the size of every type of a package.
func typeSizes(files []source, room string) map[string]size {
	sizes := map[string]size{}
	for _, f := range files {
		if f.dir != room || f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					is := sizes[receiver(decl)]
					is.methods++
					sizes[receiver(decl)] = is
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					countFields(spec, sizes)
				}
			}
		}
	}
	return sizes
}

// countFields adds the fields of a struct, if that is what is declared.
func countFields(spec ast.Spec, sizes map[string]size) {
	declared, ok := spec.(*ast.TypeSpec)
	if !ok {
		return
	}
	if structure, ok := declared.Type.(*ast.StructType); ok {
		is, fields := sizes[declared.Name.Name], 0
		for _, field := range structure.Fields.List {
			fields += max(1, len(field.Names))
		}
		is.fields = max(is.fields, fields) // each system may declare the type in its own way
		sizes[declared.Name.Name] = is
	}
}
