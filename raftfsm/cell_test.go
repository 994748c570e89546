package raftfsm_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// cell is a state machine to which a test applies commands as the log would.
type cell struct {
	t     testing.TB
	state raftfsm.State
	index uint64
	term  uint64
	next  map[api.SessionID]api.RequestNumber
}

func newCell(t testing.TB) *cell {
	c := &cell{t: t, state: raftfsm.NewState(), term: 1, next: map[api.SessionID]api.RequestNumber{}}
	c.elect()
	return c
}

// elect begins the epoch of the next term.
func (c *cell) elect() {
	c.term++
	r := c.apply(raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: raftfsm.MaxLevel}})
	stopIf(c.t, r.Code() != api.OK, "a new epoch: %v", r.Err())
}

func (c *cell) apply(command raftfsm.Command) raftfsm.Result {
	c.t.Helper()
	return c.applyIn(c.term, command)
}

// applyIn applies a command that was proposed in another epoch than the one in which it is committed.
func (c *cell) applyIn(epoch uint64, command raftfsm.Command) raftfsm.Result {
	c.t.Helper()
	c.index++
	entry := raftfsm.Entry{Epoch: api.Epoch(epoch), Wall: int64(c.index), Commands: []raftfsm.Command{command}}
	data := must(entry.Encode())(c.t)
	decoded := must(raftfsm.DecodeEntry(data))(c.t)
	results := c.state.Apply(c.index, c.term, decoded)
	noErr(c.t, c.state.Check(), "after entry", c.index)
	return results[0]
}

func (c *cell) session(nonce string) api.SessionID {
	c.t.Helper()
	r := c.apply(raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte(nonce), Principal: nonce, Lease: 12 * time.Second}})
	stopIf(c.t, r.Code() != api.OK || r.Session == 0, "a session: %v", r.Err())
	return r.Session
}

// mutation numbers the next request of a session without outstanding requests.
func (c *cell) mutation(id api.SessionID) session.Mutation {
	c.next[id]++
	n := c.next[id]
	return session.Mutation{Session: id, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: uint64(n)}
}

func (c *cell) file(id api.SessionID, name api.Name) (namespace.Ref, api.HandleID) {
	c.t.Helper()
	m := c.mutation(id)
	r := c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: m, Name: name, Create: api.MayCreate, Kind: api.File}})
	stopIf(c.t, r.Code() != api.OK, "open %s: %v", name, r.Err())
	return namespace.Ref{Name: name, Instance: r.Stat.Instance}, api.HandleID(m.Number)
}

func (c *cell) claim(id api.SessionID, h api.HandleID) raftfsm.Claim {
	return raftfsm.Claim{Mutation: c.mutation(id), Handle: h, Mode: api.Exclusive, Delay: 10 * time.Second}
}

func (c *cell) acquire(lock namespace.Ref, claims ...raftfsm.Claim) []raftfsm.ClaimResult {
	c.t.Helper()
	return c.apply(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: claims}}}).Claims
}

// copyOf returns a command that shares nothing with c.
func copyOf(c raftfsm.Command) raftfsm.Command {
	data, err := raftfsm.Entry{Commands: []raftfsm.Command{c}}.Encode()
	if err != nil {
		panic(err)
	}
	entry, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	return entry.Commands[0]
}

// kindOf returns the name of the field of a command that is set.
func kindOf(c raftfsm.Command) string {
	if what := setField(c); what.IsValid() {
		return what.Type().Elem().Name()
	}
	return "nothing"
}

// setField returns the one field of a command that is set, a pointer; or an invalid value.
func setField(c raftfsm.Command) reflect.Value {
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// show formats a command for people.
func show(c raftfsm.Command) string {
	if what := setField(c); what.IsValid() {
		return fmt.Sprintf("%s%+v", kindOf(c), what.Elem())
	}
	return "nothing"
}

// showResult formats a result without its empty fields.
func showResult(r raftfsm.Result) string {
	var b strings.Builder
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0) {
			fmt.Fprintf(&b, "%s:%+v ", v.Type().Field(i).Name, f)
		}
	}
	if r.Stat != nil {
		fmt.Fprintf(&b, "Stat:%+v", *r.Stat)
	}
	return b.String()
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error; what says of what.
func noErr(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(what, err)...)
	}
}

// report fails the test if there is an error, and lets it go on.
func report(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(what, err)...)
	}
}

// equal fails the test unless got is want; what is a format for got.
func equal[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf(what+"; want %v", got, want)
	}
}

// fails fails the test unless err has this code, and lets it go on.
func fails(t testing.TB, err error, code api.Code, what ...any) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Error(append(what, err, "want", code)...)
	}
}

// failIf fails the test, which goes on, if something is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends the test if something is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// After a master has restored access, everybody may write the lists again, however they were damaged. Other nodes keep
// their names, and an ordinary NewEpoch changes nothing.
func TestRestoreAccess(t *testing.T) {
	c := newCell(t)
	tree := &c.state.Tree
	next := func() api.Generation {
		c.state.Counter++
		return api.Generation(c.state.Counter)
	}
	must(tree.Create("/acl/ops", namespace.Spec{Kind: api.File, Contents: []byte("alice\n")}, next()))(t)
	must(tree.Create("/data", namespace.Spec{Kind: api.File}, next()))(t)
	closed := api.ACL{Read: "ops", Write: "ops", Change: "ops"}
	for _, name := range []api.Name{"", "/acl", "/acl/ops", "/data"} {
		n, _ := tree.Get(name)
		must(tree.SetACL(n.Ref(), closed, nil, next))(t)
	}
	everyone, _ := tree.Get("/acl/everyone")
	must(tree.SetContents(everyone.Ref(), namespace.Write{}, next))(t)
	may := func(name api.Name) bool {
		n, _ := c.state.Tree.Get(name)
		return c.state.Tree.Permit(n, "anonymous", namespace.ToRead|namespace.ToWrite|namespace.ToChange) == nil
	}
	begin := func(restore bool) {
		t.Helper()
		c.term++
		c.index++
		results := c.state.Apply(c.index, c.term, raftfsm.Entry{Epoch: api.Epoch(c.term), Commands: []raftfsm.Command{{
			NewEpoch: &raftfsm.NewEpoch{Cell: c.state.Cell, CellID: c.state.CellID, Secret: make([]byte, 32), Level: raftfsm.MaxLevel, RestoreAccess: restore},
		}}})
		noErr(t, results[0].Answer.Err())
	}
	begin(false)
	for _, name := range []api.Name{"", "/acl", "/acl/ops", "/data"} {
		stopIf(t, may(name), "%q is open before access is restored: the test proves nothing", name)
	}
	begin(true)
	for name, want := range map[api.Name]bool{"": true, "/acl": true, "/acl/ops": true, "/acl/everyone": true, "/data": false} {
		failIf(t, may(name) != want, "%q open to everybody: %t, want %t", name, !want, want)
	}
	if n, _ := c.state.Tree.Get("/acl/ops"); string(n.Contents) != "alice\n" {
		t.Errorf("the list ops is %q", n.Contents)
	}
	report(t, c.state.Check())
}

// A directory cannot take the name of a list, nor can a file take the name of the directory of lists: restoring access
// could not write the list then. A list cannot be ephemeral, because a restored list would be removed with a session.
func TestListsKeepTheirPlace(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	remove := func(name api.Name) {
		t.Helper()
		n, _ := c.state.Tree.Get(name)
		c.want(c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(id), Node: n.Ref()}}), api.OK)
	}
	create := func(name api.Name, kind api.Kind, ephemeral bool) raftfsm.Result {
		return c.apply(raftfsm.Command{Open: &raftfsm.Open{
			Mutation: c.mutation(id), Name: name, Create: api.MayCreate, Kind: kind, Ephemeral: ephemeral, ACL: api.ACL{},
		}})
	}
	remove("/acl/everyone")
	c.want(create("/acl/everyone", api.Directory, false), api.InvalidArgument)
	c.want(create("/acl/other", api.Directory, false), api.InvalidArgument)
	c.want(create("/acl/everyone", api.File, true), api.InvalidArgument)
	c.want(create("/acl/other", 0, true), api.InvalidArgument)
	n, _ := c.state.Tree.Get("/acl")
	noErr(t, c.state.Tree.Delete(n.Ref(), namespace.Owner{Session: id}))
	for _, one := range []struct {
		kind      api.Kind
		ephemeral bool
	}{{api.File, false}, {0, false}, {api.Directory, true}} {
		c.want(create("/acl", one.kind, one.ephemeral), api.InvalidArgument)
	}
}
