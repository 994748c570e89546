package namespace_test

import (
	"fmt"
	"iter"
	"regexp"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

var rootACL = api.ACL{Read: "all", Write: "some", Change: "few"}

// world is the state that a log changes: a tree and the counter from which its
// numbers come.
type world struct {
	tree    namespace.Tree
	counter uint64
}

func newWorld() *world { return &world{tree: namespace.New(rootACL), counter: 1} }

func (w *world) draw() uint64 { w.counter++; return w.counter }

func (w *world) drawGeneration() api.Generation { return api.Generation(w.draw()) }

// outcome is everything that an operation returned.
type outcome struct {
	Value any
	Code  api.Code
}

func outcomeOf(value any, err error) outcome { return outcome{Value: value, Code: api.CodeOf(err)} }

// dump returns everything that a tree shows.
func dump(t namespace.Tree) string {
	var b strings.Builder
	pointer := regexp.MustCompile("0x[0-9a-f]{6,}")
	show := func(what string, nodes iter.Seq[*namespace.Node]) {
		fmt.Fprintf(&b, "%s:", what)
		for n := range nodes {
			shown := *n
			shown.Quota = nil // do not print a pointer
			fmt.Fprintf(&b, " %+v %+v", shown, n.Quota)
		}
		b.WriteString("\n")
	}
	show("all", t.All())
	show("locked", t.Locked(""))
	for session := range machineSessions + 1 {
		show(fmt.Sprint("session ", session), t.OwnedBy(api.SessionID(session)))
	}
	for name, d := range t.Delays() {
		fmt.Fprintf(&b, "%s: %+v\n", name, d)
	}
	for _, creator := range machineCreators {
		fmt.Fprintf(&b, "%q uses %+v\n", creator, t.Usage(creator))
	}
	fmt.Fprintf(&b, "%+v", t.Counts())
	return pointer.ReplaceAllString(b.String(), "a list") // a pointer too; the list's contents are those of the node
}
