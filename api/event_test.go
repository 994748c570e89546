package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// Each kind has a number and a name that no other has; the name reads back; and the number
// fits the sets of kinds in handles, which have 64 bits.
func TestEventKinds(t *testing.T) {
	numbers, names := map[api.EventKind]bool{}, map[string]bool{}
	for _, kind := range api.EventKinds() {
		if numbers[kind] || names[kind.String()] || kind == 0 || kind >= 64 {
			t.Errorf("%v (%d) is there twice, or cannot be in a set", kind, kind)
		}
		numbers[kind], names[kind.String()] = true, true
		var back api.EventKind
		if err := back.UnmarshalText([]byte(kind.String())); err != nil || back != kind || !kind.Known() {
			t.Errorf("%v reads back as %v, %v", kind, back, err)
		}
		if kind.Subscribable() && kind.Essential() {
			t.Errorf("%v: handles are opened for events that may be dropped", kind)
		}
		if (kind.NeedsRead() || kind.OfChild()) && !kind.Subscribable() {
			t.Errorf("%v: the right to read, and children, are asked about where a handle was opened for the events", kind)
		}
	}
	if unknown := api.EventKind(63); unknown.Known() || unknown.Subscribable() || unknown.Essential() || unknown.String() != "event 63" {
		t.Errorf("a kind that there is none of: %v", unknown)
	}
}

// A constant without a row would be a kind of which nothing is known.
func TestEveryEventKindHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "EventKind" {
			return true
		}
		constants++
		number, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !api.EventKind(number).Known() {
			t.Errorf("%s has no row in eventRows", spec.Names[0].Name)
		}
		return true
	})
	if constants != len(api.EventKinds()) {
		t.Errorf("%d constants, and %d rows", constants, len(api.EventKinds()))
	}
}
