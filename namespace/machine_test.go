package namespace_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"pgregory.net/rapid"
)

// The names of the machine. '-' sorts before '/', so that names with a common
// beginning are not always neighbours.
var machineNames = []api.Name{"", "/a", "/a-", "/aa", "/a/b", "/a/b-", "/a/b/c", "/a/b/c/d", "/a/c", "/b", "/b/x", "/acl", "/acl/all", "/acl/some"}

const machineSessions = 3

var machineCreators = []string{"", "ann", "bob"}

// machine runs a tree and its naive twin side by side.
type machine struct {
	world
	twin      *naive
	twinDraws uint64 // the twin's counter
	refs      []namespace.Ref
	log       []func(*world) outcome
	outcomes  []outcome
	snapshots []namespace.Tree
	dumps     []string // of the snapshots, when they were taken
}

func newMachine() *machine {
	return &machine{world: *newWorld(), twin: newNaive(rootACL), twinDraws: 1, refs: []namespace.Ref{{Name: "", Instance: 1}}}
}

// do applies an operation, and checks that a failed one has changed nothing.
func (m *machine) do(t *rapid.T, op func(*world) outcome) outcome {
	before, was := m.tree, dump(m.tree)
	out := op(&m.world)
	if out.Code != api.OK && dump(m.tree) != was {
		t.Fatalf("an operation that failed with %v has changed the tree\nfrom %s\nto   %s", out.Code, was, dump(m.tree))
	}
	if dump(before) != was {
		t.Fatalf("a copy changed with the tree\nfrom %s\nto   %s", was, dump(before))
	}
	m.log, m.outcomes = append(m.log, op), append(m.outcomes, out)
	return out
}

// expect compares an outcome with the twin's.
func (m *machine) expect(t *rapid.T, got outcome, value any, code api.Code) {
	if got.Code != code || code == api.OK && !reflect.DeepEqual(got.Value, value) {
		t.Fatalf("got  %v %+v\nwant %v %+v", got.Code, got.Value, code, value)
	}
}

func (m *machine) twinGeneration() api.Generation { m.twinDraws++; return api.Generation(m.twinDraws) }
func (m *machine) twinDraw() uint64               { m.twinDraws++; return m.twinDraws }

// node returns the twin's node of that name.
func (m *machine) node(name api.Name) any {
	if m.twin.nodes[name] == nil {
		return nil
	}
	return m.twin.list([]api.Name{name})[0]
}

func deref(n *namespace.Node) any {
	if n == nil {
		return nil
	}
	return shown(n)
}

// shown returns the exported fields of a node; the twin has no others.
func shown(n *namespace.Node) (copied namespace.Node) {
	from, to := reflect.ValueOf(*n), reflect.ValueOf(&copied).Elem()
	for i := range from.NumField() {
		if from.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return copied
}

// ref draws a reference: most often to a node that exists, else to a removed
// one, or to one that never existed.
func (m *machine) ref(t *rapid.T) namespace.Ref {
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		return rapid.SampledFrom(append(m.refs, namespace.Ref{Name: "none", Instance: 7})).Draw(t, "ref")
	}
	return m.twin.nodes[rapid.SampledFrom(m.twin.names()).Draw(t, "name")].Ref()
}

func owner(t *rapid.T) namespace.Owner {
	session := rapid.IntRange(1, machineSessions*20).Draw(t, "session")
	if session > machineSessions {
		session = session%machineSessions + 1 // session 0 is rare
	} else if session == machineSessions {
		session = 0
	}
	return namespace.Owner{Session: api.SessionID(session), Handle: api.HandleID(rapid.IntRange(1, 2).Draw(t, "handle"))}
}

// ownerOf draws a handle that owns the node, if there is one.
func (m *machine) ownerOf(t *rapid.T, ref namespace.Ref) namespace.Owner {
	var owners []namespace.Owner
	if n := m.twin.resolve(ref); n != nil {
		owners = slices.Clone(n.Openers)
		for _, h := range n.Holders {
			owners = append(owners, h.Owner)
		}
	}
	if len(owners) == 0 || rapid.IntRange(0, 3).Draw(t, "stranger") == 0 {
		return owner(t)
	}
	return rapid.SampledFrom(owners).Draw(t, "owner")
}

// contents draws a number, not the bytes: rapid prints what it draws, and one
// of the contents is huge.
func contents(t *rapid.T) []byte {
	some := [][]byte{nil, {}, []byte("x"), []byte("primary"), make([]byte, api.MaxContents+1)}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "contents")]
}

func (m *machine) Create(t *rapid.T) {
	name := rapid.SampledFrom(machineNames).Draw(t, "name")
	spec := namespace.Spec{
		Kind:      rapid.SampledFrom([]api.Kind{api.File, api.Directory, api.Directory, api.Directory, 0}).Draw(t, "kind"),
		Ephemeral: rapid.Bool().Draw(t, "ephemeral"),
		ACL:       api.ACL{Write: rapid.SampledFrom([]string{"", "mine"}).Draw(t, "write")},
		Creator:   rapid.SampledFrom(machineCreators).Draw(t, "creator"),
	}
	if strings.HasPrefix(string(name), "/acl/") && rapid.IntRange(0, 9).Draw(t, "no list") > 0 {
		spec.Kind, spec.Contents = api.File, list(t)
	} else if spec.Kind == api.File || rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
		spec.Contents = contents(t)
	}
	if spec.Ephemeral {
		spec.Opener = owner(t)
	}
	got := m.do(t, func(w *world) outcome {
		n, err := w.tree.Create(name, spec, w.drawGeneration())
		return outcomeOf(deref(n), err)
	})
	instance := m.twinGeneration()
	code := m.twin.create(name, spec, instance)
	m.expect(t, got, m.node(name), code)
	if code == api.OK {
		m.refs = append(m.refs, namespace.Ref{Name: name, Instance: instance})
	}
}

func (m *machine) SetContents(t *rapid.T) {
	ref, contents := m.ref(t), contents(t)
	if strings.HasPrefix(string(ref.Name), "/acl/") {
		contents = list(t)
	}
	var ifContent *api.Generation
	if rapid.Bool().Draw(t, "conditional") {
		ifContent = m.generation(t, ref, func(n *namespace.Node) api.Generation { return n.Content })
	}
	var refused *api.Error
	got := m.do(t, func(w *world) outcome {
		n, err := w.tree.SetContents(ref, namespace.Write{Contents: contents, IfContent: ifContent}, w.drawGeneration)
		errors.As(err, &refused)
		return outcomeOf(deref(n), err)
	})
	code := m.twin.setContents(ref, contents, ifContent, m.twinGeneration)
	m.expect(t, got, m.node(ref.Name), code)
	if code == api.GenerationMismatch && refused.Current != m.twin.nodes[ref.Name].Content {
		t.Fatalf("the error names generation %d, the contents are at %d", refused.Current, m.twin.nodes[ref.Name].Content)
	}
}

// generation draws a condition for a write: most often the node's present
// generation, sometimes the one before or after.
func (m *machine) generation(t *rapid.T, ref namespace.Ref, of func(*namespace.Node) api.Generation) *api.Generation {
	g := api.Generation(1)
	if n := m.twin.nodes[ref.Name]; n != nil {
		g = of(n)
	}
	if rapid.Bool().Draw(t, "other") {
		g = api.Generation(rapid.Uint64Range(1, m.counter+1).Draw(t, "generation"))
	}
	return &g
}

func (m *machine) Delete(t *rapid.T) {
	ref := m.ref(t)
	by := m.ownerOf(t, ref)
	got := m.do(t, func(w *world) outcome { return outcomeOf(nil, w.tree.Delete(ref, by)) })
	m.expect(t, got, nil, m.twin.delete(ref, by))
}

func (m *machine) Open(t *rapid.T) {
	ref, by := m.ref(t), owner(t)
	got := m.do(t, func(w *world) outcome {
		n, err := w.tree.Open(ref, by)
		return outcomeOf(deref(n), err)
	})
	code := m.twin.open(ref, by)
	m.expect(t, got, m.node(ref.Name), code)
}

func (m *machine) Close(t *rapid.T) {
	ref := m.ref(t)
	by := m.ownerOf(t, ref)
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.Close(ref, by)) })
	want, code := m.twin.close(ref, by)
	m.expect(t, got, want, code)
}

func (m *machine) Remove(t *rapid.T) {
	ref := m.ref(t)
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.Remove(ref), nil) })
	m.expect(t, got, m.twin.remove(ref), api.OK)
}

func (m *machine) Snapshot(t *rapid.T) {
	m.snapshots, m.dumps = append(m.snapshots, m.tree), append(m.dumps, dump(m.tree))
}

// Check compares everything that the tree shows with the twin.
func (m *machine) Check(t *rapid.T) {
	if err := m.tree.Check(); err != nil {
		t.Fatal(err)
	}
	same := func(what any, got iter.Seq[*namespace.Node], want []namespace.Node) {
		nodes := []namespace.Node{}
		for n := range got {
			nodes = append(nodes, shown(n))
		}
		if !reflect.DeepEqual(nodes, want) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", what, nodes, want)
		}
	}
	same("all", m.tree.All(), m.twin.all())
	for session := range api.SessionID(machineSessions + 1) {
		same(session, m.tree.OwnedBy(session), m.twin.ownedBy(session))
	}
	for _, name := range append(machineNames, "no name", "/a/") {
		same("locked at "+name, m.tree.Locked(name), m.twin.locked(name))
		for _, after := range []string{"", "a", "a-", "b", "b-", "zz"} {
			same(fmt.Sprintf("children of %q after %q", name, after), m.tree.Children(name, after), m.twin.list(m.twin.children(name, after)))
		}
		if n, ok := m.tree.Get(name); ok != (m.twin.nodes[name] != nil) || ok && !reflect.DeepEqual(shown(n), m.node(name)) {
			t.Fatalf("Get(%q) = %+v, want %+v", name, n, m.node(name))
		}
		if d, ok := m.tree.Delay(name); d != m.twin.delays[name] || ok != (d.ID != 0) {
			t.Fatalf("Delay(%q) = %+v, %v, want %+v", name, d, ok, m.twin.delays[name])
		}
	}
	if got := maps.Collect(m.tree.Delays()); !maps.Equal(got, m.twin.delays) {
		t.Fatalf("delays\ngot  %+v\nwant %+v", got, m.twin.delays)
	}
	for _, creator := range machineCreators {
		if got := m.tree.Usage(creator); got != m.twin.usage(creator) {
			t.Fatalf("%q uses %+v, want %+v", creator, got, m.twin.usage(creator))
		}
	}
	if got := m.tree.Counts(); got != m.twin.counts() {
		t.Fatalf("counts %+v, want %+v", got, m.twin.counts())
	}
	if m.counter != m.twinDraws {
		t.Fatalf("%d numbers were drawn, want %d", m.counter, m.twinDraws)
	}
	for i, snapshot := range m.snapshots {
		if got := dump(snapshot); got != m.dumps[i] {
			t.Fatalf("snapshot %d changed\nfrom %s\nto   %s", i, m.dumps[i], got)
		}
	}
}

// A tree does the same as its naive twin; a failed operation changes nothing;
// copies never change; and the same log, applied on another replica, gives the
// same results and the same tree.
func TestTreeAgainstNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine()
		t.Repeat(map[string]func(*rapid.T){
			"":         m.Check,
			"Create":   m.Create,
			"Create 2": m.Create, // twice, so that there are nodes
			"Write":    m.SetContents,
			"Delete":   m.Delete,
			"Open":     m.Open,
			"Close":    m.Close,
			"Acquire":  m.Acquire,
			"Join":     m.Acquire,
			"Release":  m.Release,
			"Drop":     m.DropSession,
			"Remove":   m.Remove,
			"EndDelay": m.EndDelay,
			"SetACL":   m.SetACL,
			"Revoke":   m.Revoke,
			"Evict":    m.Evict,
			"SetQuota": m.SetQuota,
			"Admits":   m.Admits,
			"Snapshot": m.Snapshot,
		})
		m.replay(t)
		m.restore(t)
	})
}

func (m *machine) replay(t *rapid.T) {
	other := newWorld()
	for i, op := range m.log {
		if out := op(other); !reflect.DeepEqual(out, m.outcomes[i]) {
			t.Fatalf("operation %d repeated\ngot  %+v\nwant %+v", i, out, m.outcomes[i])
		}
	}
	if got, want := dump(other.tree), dump(m.tree); got != want {
		t.Fatalf("another replica\ngot  %s\nwant %s", got, want)
	}
}

// restore writes the tree to a snapshot and reads it back.
func (m *machine) restore(t *rapid.T) {
	read := namespace.New(api.ACL{})
	for n := range m.tree.All() {
		stored := *n
		if err := read.Restore(&stored); err != nil {
			t.Fatal(err)
		}
		if err := read.Restore(&stored); n.Name != "" && !errors.Is(err, api.Corrupt) {
			t.Fatalf("%q restored twice: %v", n.Name, err)
		}
	}
	for name, d := range m.tree.Delays() {
		read.RestoreDelay(name, d)
	}
	if err := read.Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := dump(read), dump(m.tree); got != want {
		t.Fatalf("restored\ngot  %s\nwant %s", got, want)
	}
}

// outcome is everything that an operation returned.
type outcome struct {
	Value any
	Code  api.Code
}

func outcomeOf(value any, err error) outcome { return outcome{Value: value, Code: api.CodeOf(err)} }
