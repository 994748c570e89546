package chubby_test

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"testing"
)

const protocol = "api/chubbypb/chubby.proto"

// lawRPCs: an RPC that the library does not call cannot be used, nor is it tried by anything
// that goes through the library. Whether it is served, the compiler says; what its
// caller needs, cell.TestEveryRPCAsksForItsRights.
func lawRPCs(t *testing.T, files []source) {
	text, err := os.ReadFile(protocol)
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	for _, f := range files {
		if f.test || f.dir != "client" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if method, ok := call.Fun.(*ast.SelectorExpr); ok {
					if service, ok := method.X.(*ast.SelectorExpr); ok && slices.Contains([]string{"chubby", "cell"}, service.Sel.Name) {
						called[method.Sel.Name] = true
					}
				}
			}
			return true
		})
	}
	rpcs := regexp.MustCompile(`(?m)^\s*rpc\s+(\w+)\s*\(`).FindAllSubmatch(text, -1)
	if len(rpcs) < 25 {
		t.Fatalf("%s has %d RPCs that this law can read", protocol, len(rpcs))
	}
	for _, rpc := range rpcs {
		if name := string(rpc[1]); !called[name] {
			t.Errorf("%s: package client never calls %s: give it a method that does", protocol, name)
		}
	}
}

// lawCallClass: a call that names no class would be in the one that nothing limits, and
// such calls could fill the connection that they share with all the others.
func lawCallClass(t *testing.T, files []source) {
	literals := 0
	for _, f := range files {
		if f.test || f.dir != "client" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if kind, ok := literal.Type.(*ast.Ident); !ok || kind.Name != "call" {
				return true
			}
			fields := map[string]bool{}
			for _, element := range literal.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if key, ok := pair.Key.(*ast.Ident); ok {
						fields[key.Name] = true
					}
				}
			}
			if fields["attempt"] {
				literals++
				if !fields["class"] {
					t.Errorf("%s: the call has no class: choose one of client/calllimits.go, which limits how many are in flight", f.at(literal))
				}
			}
			return true
		})
	}
	if literals < 5 {
		t.Errorf("found %d calls in package client; want at least 5", literals)
	}
}

// lawEvents: an event that no master posts, or that no test has seen, is a promise of the
// vocabulary that may be empty.
func lawEvents(t *testing.T, files []source) {
	var kinds []string
	posted, tried := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if kind, ok := n.Type.(*ast.Ident); ok && f.path == "api/event.go" && kind.Name == "EventKind" {
					kinds = append(kinds, n.Names[0].Name)
				}
			case *ast.SelectorExpr:
				if from, ok := n.X.(*ast.Ident); ok && from.Name == "api" {
					if f.test {
						tried[n.Sel.Name] = tried[n.Sel.Name] || under(f.path, "cell") || under(f.path, "e2e")
					} else if under(f.dir, "cell/internal/master") {
						posted[n.Sel.Name] = true
					}
				}
			}
			return true
		})
	}
	if len(kinds) < 13 {
		t.Fatalf("api/event.go has %d kinds of events that this law can read", len(kinds))
	}
	for _, kind := range kinds {
		if !posted[kind] {
			t.Errorf("no master posts %s: do so in cell/internal/master/events.go", kind)
		}
		if !tried[kind] {
			t.Errorf("no test in cell or e2e names %s: try that a client gets it, and when (e2e/api_events_test.go)", kind)
		}
	}
}
