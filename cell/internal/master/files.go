package master

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Files is the master's part that opens, reads, changes and closes nodes (Chubby §2.6).
type Files struct {
	epoch     *epoch
	handles   *tables.Handles
	boxes     *tables.Mailboxes
	queues    *tables.Queues
	events    *publisher
	offers    *offers
	coherence *coherence
}

// checkUnfinished returns an error if the client has given up the request's answer, or nil. epoch.mu is held.
func (f *Files) checkUnfinished(by session.Mutation) error {
	s, ok := f.epoch.state().Sessions.Get(by.Session)
	if !ok {
		//mutant: f.handles.Own(by.Session); return f.epoch.sessionEnded(by.Session)
		return f.epoch.sessionEnded(by.Session) // perhaps not observed yet
	}
	_, open := requestAt(s, by.Number)
	if (open || by.Number > s.HighestIssued) && !f.handles.Own(by.Session).Declared.Finished(by.Number) {
		return nil
	}
	return &refusal.Refusal{Cause: refusal.RequestFinished, Request: by.Number, Session: by.Session}
}

// isAnswered reports whether a request was done. Its retry goes through the log, for the same answer.
func (e *epoch) isAnswered(mutation session.Mutation) bool {
	s, ok := e.state().Sessions.Get(mutation.Session)
	if !ok {
		return false
	}
	at, found := requestAt(s, mutation.Number)
	return found && s.Open[at].Done
}

func requestAt(s *session.Session[raftfsm.Answer], number api.RequestNumber) (at int, found bool) {
	return slices.BinarySearchFunc(s.Open, number, func(r session.Request[raftfsm.Answer], n api.RequestNumber) int {
		return cmp.Compare(r.Number, n)
	})
}

// Use checks that a handle is open and has a right.
func (f *Files) Use(h Handle, right namespace.Rights, locking bool) error {
	return f.use(h, right, purpose{locking: locking})
}

// purpose is how a handle is used.
type purpose struct {
	locking bool // to ask for a lock
	trying  bool // without waiting
	looking bool // at the node
	caching bool // what it sees
}

// use is Use, and counts.
func (f *Files) use(h Handle, right namespace.Rights, to purpose) error {
	mu := f.epoch.mu.hold()
	defer mu.end()
	_, err := f.useIn(mu, h, right, to)
	return err
}

// useIn is use in a hold, and returns the handle.
func (f *Files) useIn(mu hold, h Handle, right namespace.Rights, to purpose) (*tables.OpenHandle, error) {
	box := f.boxes.ByID[h.Owner.Session]
	if box == nil {
		return nil, f.epoch.sessionEnded(h.Owner.Session)
	}
	one, err := f.handles.Get(h, f.epoch.number, box.Principal)
	if err != nil {
		return nil, err
	}
	if h.Rights&right != right {
		return nil, &refusal.Refusal{Cause: map[namespace.Rights]refusal.Cause{
			namespace.ToRead: refusal.NotOpenedToRead, namespace.ToWrite: refusal.NotOpenedToWrite, namespace.ToChange: refusal.NotOpenedToChange,
		}[right]}
	}
	one.Locks = one.Locks || to.locking
	countUse(f.epoch.reports.usages, one, to)
	if !one.Told && one.WantsConflicts() { // the handle may be of an earlier epoch, and hold the lock
		//mutant: _ = f.events.tellConflicts
		f.events.tellConflicts(mu, one.Node, nil)
	}
	return one, nil
}

func countUse(all *usages, one *tables.OpenHandle, to purpose) {
	if to.looking && one.Looked {
		all.ofSession[one.Owner.Session].count(misuse.Polling, one.Node.Name)
	}
	if to.trying && one.Tried {
		all.ofSession[one.Owner.Session].count(misuse.LockPolling, one.Node.Name)
	}
	one.Looked, one.Tried = one.Looked || to.looking, one.Tried || to.trying
}

// Change makes a change through a handle.
func (f *Files) Change(ctx context.Context, h Handle, right namespace.Rights, by session.Mutation, c raftfsm.Command) (raftfsm.Result, error) {
	if err := f.use(h, right, purpose{}); err != nil {
		return f.Refuse(ctx, by, err)
	}
	if c.Delete != nil { // refused while another session holds the lock
		f.events.awaitRecall(ctx, h.Node, h.Owner, api.Exclusive)
	}
	return f.coherence.applyChange(ctx, by, c, nil, namesTouched(h.Node.Name)...)
}

// refuseHandle refuses to lock through a handle that is closed, or will be by a Close on its way: no later
// command would release the lock. epoch.mu is held.
func (f *Files) refuseHandle(owner namespace.Owner) *refusal.Refusal {
	if one := f.handles.Find(owner); one == nil || !one.Open || f.queues.IsClosing(owner) {
		return &refusal.Refusal{Cause: refusal.HandleClosedWhileAsked}
	}
	return nil
}

// A request may have been done unknown to its client: the answer was lost, or a copy is on its way to the
// log. So the master alone never refuses a numbered request for what only it knows: a full queue, a quota, a
// closed handle. It proposes the refusal, and the log decides. If the request was done, the client gets that
// answer; if not, no copy ever will be. The entry also proves leadership. The error is marked Final; a client
// accepts no other for a retried request.

// Refuse makes a refusal the answer of a request. It returns the log's answer: the result if it was done,
// else this or an earlier refusal.
func (f *Files) Refuse(ctx context.Context, by session.Mutation, because error) (raftfsm.Result, error) {
	return f.refuseThen(ctx, by, because, func() {})
}

// refuseThen is Refuse, and calls after when the log has answered, or never will. The end of ctx does not
// stop the refusal.
func (f *Files) refuseThen(ctx context.Context, by session.Mutation, because error, after func()) (raftfsm.Result, error) {
	r, err := (*refusal.Refusal)(nil), because
	if code := api.CodeOf(because); code != api.Cancelled && refusal.IsFinal(code) { // others say nothing about the request itself
		f.epoch.mu.Lock()
		//mutant: err = nil
		err = f.checkUnfinished(by) // no client waits for its answer; the log may not know that, and answer once more
		f.epoch.mu.Unlock()
	}
	if err == nil && !errors.As(because, &r) {
		err = because // the log keeps causes, not words; without one, the error is not final
	}
	if err != nil {
		after()
		return raftfsm.Result{}, err
	}
	//mutant: after(); return raftfsm.Result{}, because
	return f.epoch.refuseAs(ctx, by, r, after)
}

// Read returns a handle's node at a moment after the call began: it proves leadership first. So a refusal is
// proved, too.
func (f *Files) Read(ctx context.Context, h Handle, right namespace.Rights) (*namespace.Node, error) {
	node, _, err := f.read(ctx, h, right, purpose{})
	return node, err
}

// ReadToCache is Read, and reports whether the client may cache the node. It registers the session as a
// reader before it reads, and after it has checked the right to.
func (f *Files) ReadToCache(ctx context.Context, h Handle, right namespace.Rights) (node *namespace.Node, cacheable bool, err error) {
	return f.read(ctx, h, right, purpose{looking: true, caching: true})
}

func (f *Files) read(ctx context.Context, h Handle, right namespace.Rights, to purpose) (node *namespace.Node, cacheable bool, err error) {
	if _, err := f.epoch.fence.Prove(ctx); err != nil {
		return nil, false, err
	}
	if err := f.use(h, right, to); err != nil {
		return nil, false, err
	}
	cacheable = to.caching && f.epoch.mayKeep(h, h.Node.Name) && f.coherence.registerReader(h.Owner.Session, h.Node.Name)
	node, err = f.epoch.look(h)
	return node, cacheable, err
}

// DirectoryPage is a page of a directory.
type DirectoryPage struct {
	Children  []*namespace.Node
	More      bool
	Cacheable bool
}

// ReadDir returns a page of at most most children, as in newPage.
func (f *Files) ReadDir(ctx context.Context, h Handle, after string, most int) (DirectoryPage, error) {
	node, cacheable, err := f.read(ctx, h, namespace.ToRead, purpose{looking: after == "", caching: true})
	if err != nil {
		return DirectoryPage{}, err
	}
	if node.Kind != api.Directory {
		return DirectoryPage{}, api.Errorf(api.NotDirectory, "only directories have children")
	}
	p := DirectoryPage{Cacheable: cacheable}
	bytes, length := 0, pageLength(most)
	for child := range f.epoch.state().Tree.Children(h.Node.Name, after) {
		if len(p.Children) == length || bytes >= api.MaxPageBytes {
			p.More = true
			break
		}
		p.Children = append(p.Children, child)
		bytes += statBytes(child)
	}
	return p, nil
}

// statBytes bounds the length of a node's metadata in a reply.
func statBytes(n *namespace.Node) int {
	const plain = 128 // numbers, and /ls/<cell>
	return plain + len(n.Name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change)
}
