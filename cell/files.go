package cell

import (
	"cmp"
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Files is the master's part that opens, reads, changes and closes nodes (Chubby §2.6).
type Files struct {
	epoch     *epoch
	handles   *handles
	boxes     *mailboxes
	queues    *queues
	events    *publisher
	offers    *offers
	coherence *coherence
}

// openRequest is a decoded and validated Open.
type openRequest struct {
	mutation  session.Mutation
	path      api.Path
	directory handle // that the path is relative to; zero if there is none
	handle    handle // what was asked for; the rest is known when the node is
	create    raftfsm.Open
}

// opened is what Open answers.
type opened struct {
	handle  handle
	created bool
	stat    api.Stat

	cacheable bool // the client may keep the stat
	reusable  bool // and may use the handle for another Open
}

// open opens a node. One that is there and permanent needs no log entry; one
// that may have to be created, or is ephemeral, goes through the log. The handle
// is reserved first, so that an Open that its quota refuses makes no node.
func (f *Files) open(ctx context.Context, r openRequest) (opened, error) {
	one, err := f.reserve(r)
	if err != nil {
		if _, err := f.refuse(ctx, r.mutation, err); err != nil {
			return opened{}, err
		}
		return f.open(ctx, r) // it had been done: what is answered already is not refused
	}
	cacheable := f.coherence.remember(r.mutation.Session, r.path.Name())
	reusable := cacheable && f.coherence.remember(r.mutation.Session, api.ACLDir) // the right to open it may change there
	if _, err := f.epoch.fence.prove(ctx); err != nil {
		f.opening(one)
		return opened{}, err
	}
	o, here, err := f.openHere(r, one, cacheable)
	if here {
		f.opening(one)
		o.cacheable, o.reusable = cacheable, reusable
		return o, err
	}
	return f.openLogged(ctx, r, one)
}

// reserve enters the handle of an Open as one that is being opened.
func (f *Files) reserve(r openRequest) (*openHandle, error) {
	principal := f.epoch.principal(r.mutation.Session)
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	if f.boxes.byID[r.mutation.Session] != nil {
		f.handles.hear(r.mutation)
	}
	if err := f.finished(r.mutation); err != nil {
		return nil, err
	}
	h := r.handle
	h.epoch = f.epoch.number
	if f.epoch.answered(r.mutation) || f.handles.find(h.owner) != nil {
		return f.handles.reserve(h, principal, nil)
	}
	if r.directory.owner.Session != 0 {
		if _, err := f.handles.get(r.directory, f.epoch.number, principal); err != nil {
			return nil, err
		}
		if _, err := f.epoch.state().Tree.Resolve(r.directory.node); err != nil {
			return nil, err
		}
	}
	allowed := f.epoch.state().Quota(principal).Handles
	return f.handles.reserve(h, principal, &allowed)
}

// opening ends the reservation that an Open has made.
func (f *Files) opening(one *openHandle) {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	f.handles.done(one)
}

// openHere opens a node without the log, or refuses to. Once a copy of a request
// was answered so, or has gone to the log, all are: here is false if the log has
// to be asked. The handle is entered at the moment of the look, under the mutex
// under which changes are observed: what was observed before is in the answer, and
// what is observed from then on is an event.
func (f *Files) openHere(r openRequest, one *openHandle, cacheable bool) (o opened, here bool, err error) {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	state, id := f.epoch.state(), r.mutation.Session
	if err := f.finished(r.mutation); err != nil {
		return o, true, err
	}
	own := f.handles.own(id)
	if err := own.refused[r.mutation.Number]; err != nil {
		return o, true, err
	}
	node, there := state.Tree.Get(r.path.Name())
	switch {
	case one.logged || f.epoch.answered(r.mutation):
	case own.byID[one.owner.Handle] != one:
		return o, true, api.Errorf(api.HandleClosed, "the handle was closed while it was being opened")
	case one.open: // another copy came first
		if node, err = state.Tree.Resolve(one.node); err != nil {
			return o, true, err
		}
		return opened{handle: one.handle, stat: stat(node, r.path)}, true, nil
	case there && !node.Ephemeral && r.create.Create != api.MustCreate:
		if err := mayOpen(state, id, node, &r.create); err != nil {
			if r.create.Create != api.MustExist {
				break // a late copy at another master might find no node, and make it: the log refuses it for good
			}
			return o, true, f.refuseHere(r.mutation, err)
		}
		one.directory = node.Kind == api.Directory
		f.handles.bind(one, node.Ref())
		return opened{handle: one.handle, stat: stat(node, r.path)}, true, nil
	case !there && r.create.Create == api.MustExist:
		absent := api.Errorf(api.NotFound, "there is no such node; create it, or check the spelling with chubbyctl ls %s", r.path.Parent())
		told := *f.refuseHere(r.mutation, absent)
		told.Cacheable = cacheable // as far as this copy has registered its reader
		return o, true, &told
	}
	one.logged = true
	return o, false, nil
}

// mayOpen says why a node that is there cannot be opened as asked; nil if it can.
func mayOpen(state *raftfsm.State, id api.SessionID, node *namespace.Node, c *raftfsm.Open) error {
	for _, g := range c.Preconditions {
		if err := state.CheckPrecondition(g); err != nil {
			return err
		}
	}
	return state.CheckOpen(id, node, c)
}

// openLogged opens a node through the log. Only a node that must exist is sure
// not to be created: another may go between the look and the log.
func (f *Files) openLogged(ctx context.Context, r openRequest, one *openHandle) (opened, error) {
	r.create.Mutation, r.create.Name = r.mutation, r.path.Name()
	c := raftfsm.Command{Open: &r.create}
	done := func() { f.opening(one) }
	var result raftfsm.Result
	var err error
	if r.create.Create == api.MustExist {
		result, err = f.epoch.commit(ctx, c, done)
		err = cmp.Or(err, f.epoch.explain(result.Answer.Err()))
	} else {
		result, err = f.coherence.change(ctx, r.mutation, c, done, touched(r.create.Name)...)
	}
	if err != nil {
		return opened{}, err
	}
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	if f.boxes.byID[r.mutation.Session] == nil {
		return opened{}, f.epoch.ended(r.mutation.Session)
	}
	o := opened{handle: one.handle, created: result.Created}
	if node, gone := f.epoch.state().Tree.Resolve(one.node); gone == nil {
		o.stat = stat(node, r.path)
		return o, nil
	}
	o.stat, err = result.Stat.In(r.path.Cell())
	return o, err
}

// nodeOpened opens the handle of an Open that the log has done. If its node has
// gone since, as when this is the answer to a retry, that is an event.
func (f *Files) nodeOpened(c *raftfsm.Open, done *raftfsm.Stat) {
	owner := namespace.Owner{Session: c.Mutation.Session, Handle: api.HandleID(c.Mutation.Number)}
	one := f.handles.find(owner)
	if one == nil || one.open {
		return // it was closed meanwhile, or opened by another copy
	}
	node := namespace.Ref{Name: done.Name, Instance: done.Instance}
	one.ephemeral, one.directory = done.Ephemeral, done.Kind == api.Directory
	f.handles.bind(one, node)
	if _, gone := f.epoch.state().Tree.Resolve(node); gone != nil {
		f.events.tellRemoved(owner, node)
	}
}

// answered reports whether a request has been done before; its retry then goes
// through the log, to be answered as it was.
func (e *epoch) answered(mutation session.Mutation) bool {
	s, ok := e.state().Sessions.Get(mutation.Session)
	if !ok {
		return false
	}
	at, found := requestAt(s, mutation.Number)
	return found && s.Open[at].Done
}

// finished is the error of a copy that comes when its client has given up the
// answer, be it by a request that went through the log or by one that did not;
// nil if it has not. epoch.mu is held.
func (f *Files) finished(by session.Mutation) error {
	s, ok := f.epoch.state().Sessions.Get(by.Session)
	if !ok {
		return f.epoch.ended(by.Session) // though that may not have been observed yet
	}
	_, open := requestAt(s, by.Number)
	if (open || by.Number > s.HighestIssued) && !f.handles.own(by.Session).declared.Finished(by.Number) {
		return nil
	}
	return api.Errorf(api.InvalidArgument, "request %d of session %v is finished: its client gave up its answer; ask anew under a new number", by.Number, by.Session)
}

// requestAt finds an open request of a session.
func requestAt(s *session.Session[raftfsm.Answer], number api.RequestNumber) (at int, found bool) {
	return slices.BinarySearchFunc(s.Open, number, func(r session.Request[raftfsm.Answer], n api.RequestNumber) int {
		return cmp.Compare(r.Number, n)
	})
}

// stat describes a node by the path it was asked for.
func stat(n *namespace.Node, path api.Path) api.Stat {
	s := n.Stat()
	s.Path = path
	return s
}

// close closes a handle and gives up what it holds. It does not fail for a handle
// that is closed already, or whose node is gone (Chubby §2.6). What it holds is
// what the replicated state says, whatever the table of handles knows; the handle
// is out of the table when that has committed. If there is nothing to give up, it
// closes the handle without the log.
func (f *Files) close(ctx context.Context, mutation session.Mutation, h handle) error {
	if !f.closesLogged(mutation, h) {
		if _, err := f.epoch.fence.prove(ctx); err != nil {
			return err
		}
		if f.closeHere(mutation, h) {
			return nil
		}
	}
	_, err := f.epoch.proposeMade(ctx, func() raftfsm.Command {
		f.epoch.mu.pause(f.queues.weight(h.node.Name))
		f.queues.closing[h.owner]++
		next := f.offers.next(h.node, func(n *namespace.Node) bool { return n.Holds(h.owner) })
		return raftfsm.Command{Close: &raftfsm.Close{Mutation: mutation, Node: h.node, Handle: h.owner.Handle, Successions: next}}
	})
	return err
}

// closesLogged reports whether a Close needs an entry: because the handle holds
// something, or may by the time an entry that is on its way is done. The handle is
// entered if it is of an earlier epoch, so that it stays closed.
func (f *Files) closesLogged(mutation session.Mutation, h handle) bool {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	return f.mayHold(mutation, h)
}

func (f *Files) mayHold(mutation session.Mutation, h handle) bool {
	if f.boxes.byID[h.owner.Session] == nil {
		return true // the log says what became of the session
	}
	f.handles.hear(mutation)
	one, err := f.handles.get(h, f.epoch.number, f.epoch.principal(h.owner.Session))
	if err == nil && one.locks || f.epoch.answered(mutation) {
		return true
	}
	node, gone := f.epoch.state().Tree.Resolve(h.node)
	return gone == nil && (node.Holds(h.owner) || slices.Contains(node.Openers, h.owner))
}

// closeHere closes a handle that holds nothing.
func (f *Files) closeHere(mutation session.Mutation, h handle) bool {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	if f.mayHold(mutation, h) {
		return false
	}
	f.handles.close(h.owner)
	return true
}

// mayLock returns HandleClosed for a handle that is closed, or that a command
// which is on its way closes before anything that is handed over from now on is
// done: what such a handle held nobody would give up. epoch.mu is held.
func (f *Files) mayLock(owner namespace.Owner) error {
	if one := f.handles.find(owner); one == nil || !one.open || f.queues.closes(owner) {
		return api.Errorf(api.HandleClosed, "the handle was closed while the lock was asked for; open the node anew")
	}
	return nil
}

// handleClosed takes a handle out of the table whose Close has committed, and
// has those refused who waited through it. They are told when the log has refused them:
// the next master would recreate the handle for a late copy of their requests, and
// grant the lock to somebody who was told that it has none. epoch.mu is held, and released
// in between.
func (f *Files) handleClosed(owner namespace.Owner) {
	f.handles.close(owner)
	for w := range f.queues.through(owner) {
		if w.refusal == nil { // else another copy of the Close came first, and the log is being asked
			w.refusal = &raftfsm.Answer{Code: api.HandleClosed, Message: "the handle was closed while the request waited"}
		}
		f.offers.settle(w)
		f.epoch.mu.pause(4) // a proposal is made, and handed over
	}
}

// use checks that a handle is open, and was opened for what is to be done.
func (f *Files) use(h handle, right namespace.Rights, locking bool) error {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	if f.boxes.byID[h.owner.Session] == nil {
		return f.epoch.ended(h.owner.Session)
	}
	known := f.handles.find(h.owner)
	one, err := f.handles.get(h, f.epoch.number, f.epoch.principal(h.owner.Session))
	if err != nil {
		return err
	}
	if one != known {
		f.events.recreated(one)
	}
	if h.rights&right != right {
		need := map[namespace.Rights]string{
			namespace.ToRead: "reading", namespace.ToWrite: "writing and locking", namespace.ToChange: "changing its ACL",
		}[right]
		return api.Errorf(api.PermissionDenied, "the handle was not opened for %s; open the node so", need)
	}
	one.locks = one.locks || locking
	return nil
}

// principal returns whom a session belongs to.
func (e *epoch) principal(id api.SessionID) string {
	if s, ok := e.state().Sessions.Get(id); ok {
		return s.Principal
	}
	return ""
}

// read returns the node of a handle as it is at some moment after the call
// began: the proof of leadership comes first, the look second. So is a refusal
// proved.
func (f *Files) read(ctx context.Context, h handle, right namespace.Rights) (*namespace.Node, error) {
	if _, err := f.epoch.fence.prove(ctx); err != nil {
		return nil, err
	}
	if err := f.use(h, right, false); err != nil {
		return nil, err
	}
	state := f.epoch.state()
	if _, ok := state.Sessions.Get(h.owner.Session); !ok {
		return nil, sessionExpired(h.owner.Session)
	}
	for _, g := range h.preconditions() {
		if err := state.CheckPrecondition(g); err != nil {
			return nil, err
		}
	}
	return state.Tree.Resolve(h.node)
}

// readToCache returns the node of a handle as read does, and whether the client
// may keep what it is told: whoever reads is entered among those who may have the
// node in a cache before the look.
func (f *Files) readToCache(ctx context.Context, h handle, right namespace.Rights) (node *namespace.Node, cacheable bool, err error) {
	cacheable = f.coherence.remember(h.owner.Session, h.node.Name)
	node, err = f.read(ctx, h, right)
	return node, cacheable, err
}

// page is a page of a directory.
type page struct {
	children  []*namespace.Node
	more      bool
	cacheable bool
}

// readDir returns a page of a directory.
func (f *Files) readDir(ctx context.Context, h handle, after string) (page, error) {
	node, cacheable, err := f.readToCache(ctx, h, namespace.ToRead)
	if err != nil {
		return page{}, err
	}
	if node.Kind != api.Directory {
		return page{}, api.Errorf(api.NotDirectory, "only directories have children")
	}
	p := page{cacheable: cacheable}
	bytes := 0
	for child := range f.epoch.state().Tree.Children(h.node.Name, after) {
		if len(p.children) == api.MaxPage || bytes >= api.MaxPageBytes {
			p.more = true
			break
		}
		p.children = append(p.children, child)
		bytes += statBytes(child)
	}
	return p, nil
}

// statBytes is how long a node's metadata is in a reply, with room to spare.
func statBytes(n *namespace.Node) int {
	const plain = 128 // numbers, and /ls/<cell>
	return plain + len(n.Name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change)
}
