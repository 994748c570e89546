package master

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
	"golang.org/x/text/unicode/norm"
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

// OpenRequest is a decoded and validated Open.
type OpenRequest struct {
	Mutation  session.Mutation
	Path      api.Path
	Directory Handle // of a relative path, or zero
	Handle    Handle // as asked for; the node completes it
	Create    raftfsm.Open
}

// Opened is the answer of Open.
type Opened struct {
	Handle  Handle
	Created bool
	Stat    api.Stat // as found or created

	Cacheable bool // the client may keep the stat
	Reusable  bool // and reuse the handle for another Open
}

// Open opens a node. An existing permanent node needs no log entry. An ephemeral node, or one that may be
// created, needs one. Open reserves the handle first, so that an Open beyond the quota creates no node.
func (f *Files) Open(ctx context.Context, r OpenRequest) (Opened, error) {
	one, err := f.reserveHandle(r)
	if err != nil {
		done := func() {
			f.epoch.mu.Lock()
			defer f.epoch.mu.Unlock()
			f.handles.endRefusal(r.Handle.Owner)
		}
		if _, err := f.refuseThen(ctx, r.Mutation, err, done); err != nil {
			return Opened{}, err
		}
		return f.Open(ctx, r) // the log had answered it: an answered request is not refused
	}
	if _, err := f.epoch.fence.Prove(ctx); err != nil {
		f.endReservation(one)
		return Opened{}, err
	}
	o, here, err := f.openHere(r, one)
	if here {
		f.endReservation(one)
		return o, err
	}
	return f.openLogged(ctx, r, one)
}

// reserveHandle enters the handle of an Open. After an error the caller has to refuse the Open, and until
// handles.endRefusal the log answers all its copies.
func (f *Files) reserveHandle(r OpenRequest) (one *openHandle, err error) {
	principal := f.epoch.principal(r.Mutation.Session)
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	defer func() {
		if err != nil {
			f.handles.refusing[r.Handle.Owner]++
		}
	}()
	if f.boxes.byID[r.Mutation.Session] != nil {
		f.handles.declare(r.Mutation)
	}
	if err := f.checkUnfinished(r.Mutation); err != nil {
		return nil, err
	}
	h := r.Handle
	h.Epoch = f.epoch.number
	if f.epoch.isAnswered(r.Mutation) || f.handles.find(h.Owner) != nil {
		return f.handles.reserve(h, principal, nil)
	}
	if r.Directory.Owner.Session != 0 {
		if _, err := f.handles.get(r.Directory, f.epoch.number, principal); err != nil {
			return nil, err
		}
		if _, err := f.epoch.state().Tree.Resolve(r.Directory.Node); err != nil {
			return nil, err
		}
	}
	allowed := f.epoch.state().Quota(principal).Handles
	//mutant: _ = allowed; return f.handles.reserve(h, principal, nil)
	return f.handles.reserve(h, principal, &allowed)
}

func (f *Files) endReservation(one *openHandle) {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	f.handles.endReservation(one)
}

// openHere opens a node without the log, or refuses to. here is false if the log has to answer. All copies of
// a request are answered in one way, here or by the log. While the log may still refuse a copy
// (handles.refusing), the log answers: its refusal is final, and no client would own a handle opened here.
//
// One hold of epoch.mu reads the node and enters the handle. So earlier changes are in the answer, and later
// ones are events. A session becomes a reader only if it may know the answer: changes wait for readers, and
// notify them.
func (f *Files) openHere(r OpenRequest, one *openHandle) (o Opened, here bool, err error) {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	state, id := f.epoch.state(), r.Mutation.Session
	if err := f.checkUnfinished(r.Mutation); err != nil {
		return o, true, err
	}
	own := f.handles.own(id)
	if err := own.refused[r.Mutation.Number]; err != nil {
		return o, true, err
	}
	node, there := state.Tree.Get(r.Path.Name())
	switch {
	case one.logged || f.handles.refusing[one.Owner] > 0 || f.epoch.isAnswered(r.Mutation):
	case own.byID[one.Owner.Handle] != one:
		return o, true, api.Errorf(api.HandleClosed, "the handle was closed while it was being opened")
	case one.open: // another copy came first
		if node, err = state.Tree.Resolve(one.Node); err != nil {
			return o, true, err
		}
		return f.openedHere(r, one, node), true, nil
	case there && !node.Ephemeral && r.Create.Create != api.MustCreate:
		if err := mayOpen(state, id, node, &r.Create); err != nil {
			if r.Create.Create != api.MustExist {
				break // a late copy at another master might create the node: the log's refusal is final
			}
			return o, true, f.handles.refuse(r.Mutation, err)
		}
		one.Directory = node.Kind == api.Directory
		f.handles.bind(one, node.Ref())
		usage := f.epoch.reports.usages.ofSession[id]
		usage.count(countOpens, node.Name)
		usage.opened(node)
		return f.openedHere(r, one, node), true, nil
	case !there && r.Create.Create == api.MustExist:
		absent := api.Errorf(api.NotFound, "there is no such node; create it, or check the spelling with chubbyctl ls %s", r.Path.Parent())
		told := *f.handles.refuse(r.Mutation, absent)
		told.Cacheable = !r.Handle.NoCache && mayKnow(state, f.epoch.principal(id), r.Path.Name()) && f.coherence.enterReader(id, r.Path.Name())
		return o, true, &told
	default:
		if fault := checkSpelling(state, r.Path.Name(), r.Create.Create); fault != nil {
			return o, true, f.handles.refuse(r.Mutation, fault)
		}
	}
	one.logged = true
	return o, false, nil
}

// openedHere returns the answer to an Open without the log. epoch.mu is held.
func (f *Files) openedHere(r OpenRequest, one *openHandle, node *namespace.Node) Opened {
	o := Opened{Handle: one.Handle, Stat: stat(node, r.Path)}
	o.Cacheable = f.epoch.mayKeep(r.Handle, node.Name) && f.coherence.enterReader(r.Mutation.Session, node.Name)
	o.Reusable = o.Cacheable && f.coherence.enterReader(r.Mutation.Session, api.ACLDir) // a change there may withdraw the right to open
	return o
}

// mayOpen returns why an existing node cannot be opened as asked, or nil.
func mayOpen(state *raftfsm.State, id api.SessionID, node *namespace.Node, c *raftfsm.Open) error {
	for _, g := range c.Preconditions {
		if err := state.CheckPrecondition(g); err != nil {
			return err
		}
	}
	return state.CheckOpen(id, node, c)
}

// openLogged opens a node through the log. Only MustExist surely creates none: in other modes the node may be
// gone by then.
func (f *Files) openLogged(ctx context.Context, r OpenRequest, one *openHandle) (Opened, error) {
	r.Create.Mutation, r.Create.Name = r.Mutation, r.Path.Name()
	c := raftfsm.Command{Open: &r.Create}
	done := func() { f.endReservation(one) }
	var result raftfsm.Result
	var err error
	if r.Create.Create == api.MustExist {
		result, err = f.epoch.propose(ctx, c, done)
	} else {
		result, err = f.coherence.applyChange(ctx, r.Mutation, c, done, namesTouched(r.Create.Name)...)
	}
	if err != nil {
		return Opened{}, err
	}
	return openedBy(one.Handle, r.Path.Cell(), result.Answer)
}

// openedBy makes the answer to an Open from the log's answer alone: others may have written since, and the
// creator would take their contents for its own. An ended session is answered, too: its next call fails, and
// what it created counts as done.
func openedBy(h Handle, cell string, a raftfsm.Answer) (Opened, error) {
	described, err := a.Stat.In(cell)
	return Opened{Handle: h, Created: a.Created, Stat: described}, err
}

// bindOpened opens the handle of a logged Open. If the node was removed since, as before a retry, it posts
// the event.
func (f *Files) bindOpened(c *raftfsm.Open, done *raftfsm.Stat) {
	owner := namespace.Owner{Session: c.Mutation.Session, Handle: api.HandleID(c.Mutation.Number)}
	one := f.handles.find(owner)
	if one == nil || one.open {
		return // it was closed meanwhile, or opened by another copy
	}
	node := namespace.Ref{Name: done.Name, Instance: done.Instance}
	one.Ephemeral, one.Directory = done.Ephemeral, done.Kind == api.Directory
	f.handles.bind(one, node)
	f.epoch.reports.usages.ofSession[owner.Session].count(countOpens, node.Name)
	if _, gone := f.epoch.state().Tree.Resolve(node); gone != nil {
		f.events.tellRemoved(owner, node)
	}
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

// checkUnfinished returns an error if the client has given up the request's answer, or nil. epoch.mu is held.
func (f *Files) checkUnfinished(by session.Mutation) error {
	s, ok := f.epoch.state().Sessions.Get(by.Session)
	if !ok {
		//mutant: f.handles.own(by.Session); return f.epoch.sessionEnded(by.Session)
		return f.epoch.sessionEnded(by.Session) // perhaps not observed yet
	}
	_, open := requestAt(s, by.Number)
	if (open || by.Number > s.HighestIssued) && !f.handles.own(by.Session).declared.Finished(by.Number) {
		return nil
	}
	return &refusal.Refusal{Cause: refusal.RequestFinished, Request: by.Number, Session: by.Session}
}

func requestAt(s *session.Session[raftfsm.Answer], number api.RequestNumber) (at int, found bool) {
	return slices.BinarySearchFunc(s.Open, number, func(r session.Request[raftfsm.Answer], n api.RequestNumber) int {
		return cmp.Compare(r.Number, n)
	})
}

// stat describes a node by the caller's path.
func stat(n *namespace.Node, path api.Path) api.Stat {
	s := n.Stat()
	s.Path = path
	return s
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
	if f.boxes.byID[h.Owner.Session] == nil {
		return f.epoch.sessionEnded(h.Owner.Session)
	}
	one, err := f.handles.get(h, f.epoch.number, f.epoch.principal(h.Owner.Session))
	if err != nil {
		return err
	}
	if h.Rights&right != right {
		return &refusal.Refusal{Cause: map[namespace.Rights]refusal.Cause{
			namespace.ToRead: refusal.NotOpenedToRead, namespace.ToWrite: refusal.NotOpenedToWrite, namespace.ToChange: refusal.NotOpenedToChange,
		}[right]}
	}
	one.locks = one.locks || to.locking
	f.countUse(one, to)
	if !one.told && one.wantsConflicts() { // the handle may be of an earlier epoch, and hold the lock
		//mutant: _ = f.events.tellConflicts
		f.events.tellConflicts(mu, one.Node, nil)
	}
	return nil
}

func (f *Files) countUse(one *openHandle, to purpose) {
	if to.looking && one.looked {
		f.epoch.reports.usages.ofSession[one.Owner.Session].count(misuse.Polling, one.Node.Name)
	}
	if to.trying && one.tried {
		f.epoch.reports.usages.ofSession[one.Owner.Session].count(misuse.LockPolling, one.Node.Name)
	}
	one.looked, one.tried = one.looked || to.looking, one.tried || to.trying
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

// checkSpelling refuses to create a node whose name is not in Unicode's normal form C (NFC). Such a name
// looks like another, so two programs that mean one lock would have two. That happens if one reads the name
// from a file system that decomposes names. Existing nodes keep their names. The master checks its own tree,
// outside the log: replicas need not agree on Unicode tables. Opens and transactions check here; a restore
// does not.
func checkSpelling(state *raftfsm.State, name api.Name, create api.Create) *api.Error {
	own := path.Base(string(name))
	if create == api.MustExist || !state.WantsNFC() || norm.NFC.IsNormalString(own) {
		return nil
	}
	if _, there := state.Tree.Get(name); there {
		return nil
	}
	return api.Errorf(api.InvalidPath, "the name %s is not in Unicode's normal form C (NFC), and looks like another: write it as %s; names that are there already stay as they are",
		strconv.QuoteToASCII(own), strconv.QuoteToASCII(norm.NFC.String(own)))
}
