package raftfsm_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// step is the choices behind one command. Its meaning depends on the steps before it, so that any of them can be left
// out, and any byte can be made 0, which is the simplest choice.
type step [28]byte

// choices returns the bytes of a step, and then zeros.
type choices struct{ left []byte }

// pick returns a number below n; n is at most 256.
func (c *choices) pick(n int) int {
	if len(c.left) == 0 {
		return 0
	}
	first := c.left[0]
	c.left = c.left[1:]
	return int(first) % n
}

// rarely is true once in n times.
func (c *choices) rarely(n int) bool { return c.pick(n) == n-1 }

// one picks one of its arguments.
func one[T any](c *choices, of ...T) T { return of[c.pick(len(of))] }

// driver turns steps into commands, mostly such as the masters and clients of a cell would send in the present state of
// the model, and some that none would send.
type driver struct {
	choices
	m       *model
	clients map[api.SessionID]*driverClient
	waiting []driverWaiter
	sent    []raftfsm.Command // some of the latest, to be repeated
	held    []raftfsm.Command // made, and applied after later ones
}

type driverClient struct {
	given  api.RequestNumber   // the latest
	wanted []api.RequestNumber // whose answers the client still wants, ascending
}

type driverWaiter struct {
	lock  namespace.Ref
	claim raftfsm.Claim
}

func newDriver(m *model) *driver { return &driver{m: m, clients: map[api.SessionID]*driverClient{}} }

// Names that a node may have, and some that are invalid.
var (
	driverNames = []api.Name{
		"/a", "/d", "/d/x", "/d/y", "/d/e", "/d/e/f", "/d/e/g", "/b", "", "/acl/ops", "/acl/few", "/acl/everyone", "/acl",
		"/d-", "/none/z", "x", "/", "/d//x", "/d/",
	}
	driverLists    = []string{"*\n", "alice\nbob\n", "@few\r\n# @everyone\r\ncarol\r\n", "@ops\nalice", "", "@everyone\n"}
	driverContents = []string{"", "x", "primary", "0123456789", "01234567890123456789"}
)

// command makes the command of a step.
func (d *driver) command(s step) raftfsm.Command {
	d.left = s[:]
	kind := d.pick(256)
	switch { // first, so that the steps below have something to work on
	case kind < 62:
		return d.open()
	case kind < 75:
		return d.create()
	case kind < 96:
		return d.again()
	case kind < 100 && len(d.held) > 0:
		c := d.held[0]
		d.held = d.held[1:]
		return c
	}
	c := d.fresh(kind)
	if d.rarely(30) && mutationOf(c) != nil {
		d.held = append(d.held, c)
		return raftfsm.Command{}
	}
	return c
}

// maxTestLevel is the highest feature level to which a test raises a state.
const maxTestLevel = 9

func (d *driver) fresh(kind int) raftfsm.Command {
	if d.m.staged != nil && !d.rarely(4) {
		return d.restore()
	}
	switch {
	case kind < 136:
		return d.acquire()
	case kind < 150:
		return d.txn()
	case kind < 165:
		return d.write()
	case kind < 178:
		return d.release()
	case kind < 198:
		return d.letGo(kind)
	case kind < 218:
		return d.loss(kind)
	case kind < 224:
		return d.cancel()
	case kind < 236:
		return raftfsm.Command{SetQuota: d.setQuota()}
	case kind < 243:
		return d.end()
	case kind < 247:
		return d.restore()
	case kind < 248:
		return raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{Session: d.session(), Lease: one(&d.choices, time.Minute, time.Second, time.Hour, 0, -1)}}
	case kind < 251, kind < 252 && d.rarely(2):
		return d.changeMembers()
	case kind < 252:
		return raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: d.mutation(d.session()), To: d.pick(maxTestLevel + 1)}}
	case kind < 254:
		return raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: raftfsm.MaxLevel}}
	}
	return raftfsm.Command{}
}

// session returns a session that mostly exists.
func (d *driver) session() api.SessionID {
	if live := slices.Sorted(maps.Keys(d.m.clients)); len(live) > 0 && !d.rarely(20) {
		return live[d.pick(len(live))]
	}
	return api.SessionID(d.pick(40))
}

func (d *driver) name() api.Name {
	switch d.pick(24) {
	case 22, 23:
		return one(&d.choices, driverNames...)
	case 20, 21:
		return one[api.Name](&d.choices, "/acl/ops", "/acl/few", "/acl/operators")
	}
	return driverNames[d.pick(9)]
}

// ref returns a reference, mostly to a node that exists.
func (d *driver) ref() namespace.Ref {
	name := d.name()
	if there := d.ordinary(); d.m.nodes[name] == nil && len(there) > 0 && !d.rarely(6) {
		name = there[d.pick(len(there))]
	}
	n := d.m.nodes[name]
	if n == nil || d.rarely(20) {
		return namespace.Ref{Name: name, Instance: api.Generation(d.pick(60))}
	}
	return namespace.Ref{Name: name, Instance: n.instance}
}

// ordinary lists the nodes that are not access control lists.
func (d *driver) ordinary() []api.Name {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.m.nodes)), func(name api.Name) bool { return strings.HasPrefix(string(name), "/acl") })
}

// owner returns a handle, mostly one that has the node.
func (d *driver) owner(ref namespace.Ref) namespace.Owner {
	if n := d.m.nodes[ref.Name]; n != nil && !d.rarely(4) {
		owners := slices.SortedFunc(maps.Keys(n.openers), compareOwners)
		for _, h := range n.holders {
			owners = append(owners, h.Owner)
		}
		if len(owners) > 0 {
			return owners[d.pick(len(owners))]
		}
	}
	return namespace.Owner{Session: d.session(), Handle: api.HandleID(1 + d.pick(3))}
}

// mutation numbers a request, and declares which answers its client still wants.
func (d *driver) mutation(id api.SessionID) session.Mutation {
	c := d.clients[id]
	if c == nil {
		c = &driverClient{}
		d.clients[id] = c
	}
	c.given++
	if d.rarely(4) && len(c.wanted) > 0 {
		c.wanted = slices.Delete(c.wanted, 0, 1+d.pick(len(c.wanted)))
	}
	c.wanted = append(c.wanted, c.given)
	if len(c.wanted) > 10 {
		c.wanted = c.wanted[5:]
	}
	q := session.Mutation{Session: id, Number: c.given, HighestIssued: c.given, Outstanding: slices.Clone(c.wanted), Hash: uint64(c.given)}
	if d.rarely(40) {
		d.spoil(&q)
	}
	return q
}

// spoil makes a request or its declaration wrong.
func (d *driver) spoil(q *session.Mutation) {
	switch d.pick(7) {
	case 0:
		q.HighestIssued--
	case 1:
		q.Outstanding = nil
	case 2:
		slices.Reverse(q.Outstanding)
	case 3:
		q.Number = api.RequestNumber(d.pick(20))
	case 4:
		q.Hash = uint64(d.pick(3))
	case 5:
		q.HighestIssued = api.MaxGeneration + 1
	case 6:
		for n := api.RequestNumber(1); len(q.Outstanding) <= api.MaxOutstanding; n++ {
			q.Outstanding = append(q.Outstanding, q.HighestIssued+n)
		}
	}
}

// again repeats a command: unchanged, with another hash, or with a later declaration.
func (d *driver) again() raftfsm.Command {
	if len(d.sent) == 0 {
		return raftfsm.Command{}
	}
	c := copyOf(one(&d.choices, d.sent...))
	q := mutationOf(c)
	switch d.pick(8) {
	case 0:
		q.Hash++
	case 1, 2:
		if client := d.clients[q.Session]; client != nil && slices.Contains(client.wanted, q.Number) {
			q.HighestIssued, q.Outstanding = client.given, slices.Clone(client.wanted)
		}
	}
	return c
}

// observe learns from the result of a command.
func (d *driver) observe(c raftfsm.Command, r raftfsm.Result) {
	if mutationOf(c) != nil && d.left != nil {
		if d.sent = append(d.sent, c); len(d.sent) > 24 {
			d.sent = d.sent[8:]
		}
	}
	answered := map[namespace.Owner]bool{}
	for _, one := range r.Claims {
		if !one.Pending {
			answered[namespace.Owner{Session: one.Owner.Session, Handle: api.HandleID(one.Number)}] = true
		}
	}
	d.waiting = slices.DeleteFunc(d.waiting, func(w driverWaiter) bool {
		return answered[namespace.Owner{Session: w.claim.Mutation.Session, Handle: api.HandleID(w.claim.Mutation.Number)}]
	})
	if len(d.waiting) > 24 {
		d.waiting = d.waiting[12:]
	}
}

func (d *driver) preconditions() []raftfsm.Precondition {
	if !d.rarely(10) {
		return nil
	}
	var held []api.Name
	for _, name := range slices.Sorted(maps.Keys(d.m.nodes)) {
		if len(d.m.nodes[name].holders) > 0 {
			held = append(held, name)
		}
	}
	if len(held) == 0 {
		return []raftfsm.Precondition{{Lock: d.name(), Mode: api.Exclusive}}
	}
	name := held[d.pick(len(held))]
	g := raftfsm.Precondition{Lock: name, Mode: d.m.nodes[name].mode, Generation: d.m.nodes[name].lock}
	switch d.pick(10) {
	case 7:
		g.Generation--
	case 8:
		g.Mode = 3 - g.Mode
	case 9:
		g.Lock = d.name()
	}
	return []raftfsm.Precondition{g}
}

func (d *driver) list() string {
	return one(&d.choices, "", "", "", "", "", "", "", "", "", "ops", "few", "everyone", "none")
}

// contents returns contents that fit the file.
func (d *driver) contents(name api.Name) []byte {
	switch {
	case strings.HasPrefix(string(name), "/acl/"):
		return []byte(one(&d.choices, driverLists...))
	case d.rarely(256):
		return make([]byte, api.MaxContents+d.pick(2)) // the largest allowed size, or one byte more
	}
	return []byte(one(&d.choices, driverContents...))
}

func (d *driver) open() raftfsm.Command {
	if len(d.m.clients) == 0 || d.rarely(8) {
		return d.create()
	}
	name := d.name()
	c := raftfsm.Open{
		Mutation: d.mutation(d.session()), Name: name, Create: one(&d.choices, api.MayCreate, api.MayCreate, api.MayCreate, api.MustCreate, api.MustExist, 3),
		Kind: one(&d.choices, api.File, 0, 0), Ephemeral: d.rarely(3), Rights: namespace.Rights(d.pick(8)), Preconditions: d.preconditions(),
		ACL: api.ACL{Read: d.list(), Write: d.list(), Change: d.list()},
	}
	if dirs := []api.Name{"/d", "/d/e", "/acl", ""}; slices.Contains(dirs, name) {
		c.Kind = api.Directory
	}
	if d.rarely(12) {
		c.Kind = api.Kind(d.pick(4))
	}
	if c.Kind != api.Directory || d.rarely(30) {
		c.Contents = d.contents(name)
	}
	return raftfsm.Command{Open: &c}
}

func (d *driver) create() raftfsm.Command {
	number := d.pick(8)
	c := raftfsm.CreateSession{Nonce: []byte{byte('a' + number)}, Principal: []string{"alice", "bob", "carol", ""}[number/2], Lease: 12 * time.Second, PID: d.pick(3)}
	if d.rarely(20) {
		c.Lease = one(&d.choices, 0, -1, time.Hour)
	}
	if d.rarely(40) {
		c.Nonce = nil
	}
	if d.rarely(2) { // below level 2 it is refused
		c.MayCache, c.CacheLease = true, true
	}
	return raftfsm.Command{CreateSession: &c}
}

func (d *driver) write() raftfsm.Command {
	ref := d.ref()
	q := d.mutation(d.session())
	var only *api.Generation
	if d.rarely(5) {
		g := api.Generation(1 + d.pick(3))
		if n := d.m.nodes[ref.Name]; n != nil && !d.rarely(4) {
			g = one(&d.choices, n.content, n.acls)
		}
		only = &g
	}
	if d.rarely(3) {
		return raftfsm.Command{SetACL: &raftfsm.SetACL{
			Mutation: q, Node: ref, ACL: api.ACL{Read: d.list(), Write: d.list(), Change: d.list()}, IfACLs: only, Preconditions: d.preconditions(),
		}}
	}
	return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: q, Node: ref, Contents: d.contents(ref.Name), IfContent: only, Preconditions: d.preconditions()}}
}

func (d *driver) setQuota() *raftfsm.SetQuota {
	c := raftfsm.SetQuota{Mutation: d.mutation(d.session()), Principal: one(&d.choices, "alice", "bob", "carol", "")}
	if d.rarely(2) {
		ref := namespace.Ref{Name: one[api.Name](&d.choices, "/d", "/d/e", "")}
		if n := d.m.nodes[ref.Name]; n != nil {
			ref.Instance = n.instance
		}
		if d.rarely(8) {
			ref = d.ref()
		}
		c.Directory = &ref
	}
	if !d.rarely(3) {
		c.Quota = api.Quota{Nodes: one(&d.choices, 0, 2, 3, 5, -1), Bytes: one[int64](&d.choices, 0, 10, 20, 40), Sessions: one(&d.choices, 0, 1, 2)}
	}
	if d.rarely(3) { // exactly the present usage, or one more
		used := d.m.usage(c.Principal)
		if c.Directory != nil {
			used = d.m.below(c.Directory.Name)
		}
		c.Quota = api.Quota{Nodes: used.Nodes + d.pick(2), Bytes: used.Bytes + int64(d.pick(2))}
	}
	return &c
}
