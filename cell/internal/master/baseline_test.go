package master

import (
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// uncached submits changes of a node that no client has in its cache, as mutate
// would. The caller holds s.mu.
func (s *soloMaster) uncached(name api.Name, changes ...raftfsm.Command) {
	s.tables.copyset.changing[name]++
	for _, c := range changes {
		s.epoch.submit(c)
	}
}

// locked does something with s.mu held.
func (s *soloMaster) locked(do func()) {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	do()
}

// A client that opens a node for events gets the state in the answer, and later
// changes as events (Chubby §2.5). Every change between reading the state and
// entering the handle must be in the answer or among the events.
func TestOpenAndEventsLeaveNoGap(t *testing.T) {
	write := func(c *soloClient, node namespace.Ref) raftfsm.Command {
		return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(), Node: node, Contents: []byte("x")}}
	}
	remove := func(c *soloClient, node namespace.Ref) raftfsm.Command {
		return raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(), Node: node}}
	}
	for name, test := range map[string]struct {
		exists bool
		change func(c *soloClient, node namespace.Ref) raftfsm.Command
	}{
		"written after it was found":        {true, write},
		"deleted after it was found":        {true, remove},
		"written in the entry that made it": {false, write},
		"deleted in the entry that made it": {false, remove},
	} {
		t.Run(name, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				author, watcher := m.client(t, 1), m.client(t, 2)
				node := namespace.Ref{Name: "/f", Instance: api.Generation(m.epoch.state().Counter + 1)} // once it has been created
				m.locked(func() { m.uncached(node.Name) })
				mutation := watcher.mutation()
				r := OpenRequest{Mutation: mutation, Path: api.MustParsePath("/ls/local/f"), Create: raftfsm.Open{Kind: api.File, Create: api.MayCreate, Rights: namespace.ToRead}}
				r.Handle = Handle{Owner: namespace.Owner{Session: watcher.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: namespace.ToRead, Events: EventSet(0).With(api.EventContentsModified)}
				var o Opened
				open := func() (err error) { o, err = m.Files.Open(t.Context(), r); return err }
				done := make(chan error, 1)
				if test.exists {
					author.open(t, "/ls/local/f", api.MayCreate)
					load := m.Master.epoch.state
					m.proving = func() {
						m.proving = nil
						m.Master.epoch.state = func() *raftfsm.State { // called with epoch.mu held: changes are observed after it
							found := load()
							m.Master.epoch.state = load
							m.uncached(node.Name, test.change(author, node))
							return found
						}
					}
					done <- open()
				} else {
					// While an entry is on its way, the proposer collects
					// commands for the next.
					m.applying = func() {
						m.applying = nil
						go func() { done <- open() }()
						synctest.Wait()
						m.locked(func() { m.uncached(node.Name, test.change(author, node)) })
					}
					m.locked(func() { m.epoch.submit(raftfsm.Command{EndDelay: &raftfsm.EndDelay{Name: "/nothing", ID: 1}}) })
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				m.epoch.mu.Lock()
				defer m.epoch.mu.Unlock()
				told := map[api.EventKind]int{}
				for _, e := range m.tables.boxes.byID[watcher.who.Session].events {
					if e.Handle == api.HandleID(mutation.Number) {
						told[e.Kind]++
					}
				}
				now, there := m.epoch.state().Tree.Get("/f")
				switch {
				case !there && told[api.EventHandleInvalid] == 0:
					t.Error("the node is gone, and no event says so")
				case there && now.Content != o.Stat.Content && told[api.EventContentsModified] == 0:
					t.Errorf("the answer shows generation %d, the node has %d, and no event says so", o.Stat.Content, now.Content)
				case there && now.Content == now.Instance:
					t.Error("nothing was changed: the test proves nothing")
				}
			})
		})
	}
}
