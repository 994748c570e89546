package master

import (
	"context"
	"path"
	"slices"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
	"golang.org/x/text/unicode/norm"
)

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
			f.handles.EndRefusal(r.Handle.Owner)
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
// handles.EndRefusal the log answers all its copies.
func (f *Files) reserveHandle(r OpenRequest) (one *tables.OpenHandle, err error) {
	principal := f.epoch.principal(r.Mutation.Session)
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	defer func() {
		if err != nil {
			f.handles.Refusing[r.Handle.Owner]++
		}
	}()
	if f.boxes.ByID[r.Mutation.Session] != nil {
		f.handles.Declare(r.Mutation)
	}
	if err := f.checkUnfinished(r.Mutation); err != nil {
		return nil, err
	}
	h := r.Handle
	h.Epoch = f.epoch.number
	if f.epoch.isAnswered(r.Mutation) || f.handles.Find(h.Owner) != nil {
		return f.handles.Reserve(h, principal, nil)
	}
	if r.Directory.Owner.Session != 0 {
		if _, err := f.handles.Get(r.Directory, f.epoch.number, principal); err != nil {
			return nil, err
		}
		if _, err := f.epoch.state().Tree.Resolve(r.Directory.Node); err != nil {
			return nil, err
		}
	}
	allowed := f.epoch.state().Quota(principal).Handles
	//mutant: _ = allowed; return f.handles.Reserve(h, principal, nil)
	return f.handles.Reserve(h, principal, &allowed)
}

func (f *Files) endReservation(one *tables.OpenHandle) {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	f.handles.EndReservation(one)
}

// openHere opens a node without the log, or refuses to. here is false if the log has to answer. All copies of
// a request are answered in one way, here or by the log. While the log may still refuse a copy
// (handles.Refusing), the log answers: its refusal is final, and no client would own a handle opened here.
//
// One hold of epoch.mu reads the node and enters the handle. So earlier changes are in the answer, and later
// ones are events. A session becomes a reader only if it may know the answer: changes wait for readers, and
// notify them.
func (f *Files) openHere(r OpenRequest, one *tables.OpenHandle) (o Opened, here bool, err error) {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	state, id := f.epoch.state(), r.Mutation.Session
	if err := f.checkUnfinished(r.Mutation); err != nil {
		return o, true, err
	}
	own := f.handles.Own(id)
	if err := own.Refused[r.Mutation.Number]; err != nil {
		return o, true, err
	}
	node, there := state.Tree.Get(r.Path.Name())
	switch {
	case one.Logged || f.handles.Refusing[one.Owner] > 0 || f.epoch.isAnswered(r.Mutation):
	case own.ByID[one.Owner.Handle] != one:
		return o, true, api.Errorf(api.HandleClosed, "the handle was closed while it was being opened")
	case one.Open: // another copy came first
		if node, err = state.Tree.Resolve(one.Node); err != nil {
			return o, true, err
		}
		return f.openedHere(r, one, node), true, nil
	case there && !node.Ephemeral && r.Create.Create != api.MustCreate:
		if err := mayOpen(state, id, node, &r.Create); err != nil {
			if r.Create.Create != api.MustExist {
				break // a late copy at another master might create the node: the log's refusal is final
			}
			return o, true, f.handles.Refuse(r.Mutation, err)
		}
		one.Directory = node.Kind == api.Directory
		f.handles.Bind(one, node.Ref())
		usage := f.epoch.reports.usages.ofSession[id]
		usage.count(countOpens, node.Name)
		usage.opened(node)
		return f.openedHere(r, one, node), true, nil
	case !there && r.Create.Create == api.MustExist:
		absent := api.Errorf(api.NotFound, "there is no such node; create it, or check the spelling with chubbyctl ls %s", r.Path.Parent())
		told := *f.handles.Refuse(r.Mutation, absent)
		told.Cacheable = !r.Handle.NoCache && mayKnow(state, f.epoch.principal(id), r.Path.Name()) && f.coherence.enterReader(id, r.Path.Name())
		return o, true, &told
	default:
		if fault := checkSpelling(state, r.Path.Name(), r.Create.Create); fault != nil {
			return o, true, f.handles.Refuse(r.Mutation, fault)
		}
	}
	one.Logged = true
	return o, false, nil
}

// openedHere returns the answer to an Open without the log. epoch.mu is held.
func (f *Files) openedHere(r OpenRequest, one *tables.OpenHandle, node *namespace.Node) Opened {
	o := Opened{Handle: one.Handle, Stat: node.Stat()}
	o.Stat.Path = r.Path
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
func (f *Files) openLogged(ctx context.Context, r OpenRequest, one *tables.OpenHandle) (Opened, error) {
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
	one := f.handles.Find(owner)
	if one == nil || one.Open {
		return // it was closed meanwhile, or opened by another copy
	}
	node := namespace.Ref{Name: done.Name, Instance: done.Instance}
	one.Ephemeral, one.Directory = done.Ephemeral, done.Kind == api.Directory
	f.handles.Bind(one, node)
	f.epoch.reports.usages.ofSession[owner.Session].count(countOpens, node.Name)
	if _, gone := f.epoch.state().Tree.Resolve(node); gone != nil {
		f.events.tellRemoved(owner, node)
	}
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

// Close closes a handle and releases what it holds. A closed handle or a removed node is no error (Chubby
// §2.6). The replicated state says what the handle holds. The table drops the handle when the command has
// committed. If it holds nothing, no entry is needed.
func (f *Files) Close(ctx context.Context, mutation session.Mutation, h Handle) error {
	f.epoch.mu.Lock()
	logged := f.mayHold(mutation, h)
	f.epoch.mu.Unlock()
	if !logged {
		if _, err := f.epoch.fence.Prove(ctx); err != nil {
			return err
		}
		if f.closeHere(mutation, h) {
			return nil
		}
	}
	_, err := f.offers.propose(ctx, func(mu hold) raftfsm.Command {
		//mutant: f.handles.Close(h.Owner)
		mu.pause(f.queues.StepsOf(h.Node.Name))
		f.queues.Closing[h.Owner]++
		next := f.offers.successorsOf(h.Node, func(n *namespace.Node) bool { return n.Holds(h.Owner) })
		return raftfsm.Command{Close: &raftfsm.Close{Mutation: mutation, Node: h.Node, Handle: h.Owner.Handle, Successions: next}}
	})
	return err
}

// mayHold reports whether a Close needs an entry: the handle holds something, or a pending entry may give it
// something. It enters an earlier epoch's handle, so that it stays closed. epoch.mu is held.
func (f *Files) mayHold(mutation session.Mutation, h Handle) bool {
	if f.boxes.ByID[h.Owner.Session] == nil {
		return true // the log says how the session ended
	}
	f.handles.Declare(mutation)
	one, err := f.handles.Get(h, f.epoch.number, f.epoch.principal(h.Owner.Session))
	if err == nil && one.Locks || f.epoch.isAnswered(mutation) {
		return true
	}
	node, gone := f.epoch.state().Tree.Resolve(h.Node)
	//mutant: _, _ = gone, slices.Contains(node.Openers, h.Owner); return false
	return gone == nil && (node.Holds(h.Owner) || slices.Contains(node.Openers, h.Owner))
}

// closeHere closes a handle that holds nothing.
func (f *Files) closeHere(mutation session.Mutation, h Handle) bool {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	if f.mayHold(mutation, h) {
		return false
	}
	f.epoch.reports.handleClosed(f.handles, h.Owner)
	return true
}

// handleClosed drops a closed handle, and has the log refuse its waiters. They are answered after that: else
// the next master would recreate the handle for a late copy, and grant a lock whose request was refused.
func (f *Files) handleClosed(mu hold, owner namespace.Owner) {
	f.epoch.reports.handleClosed(f.handles, owner)
	for w := range f.queues.OfHandle(owner) {
		if w.Refusal == nil { // else another Close came first, and the log is being asked
			w.Refusal = &refusal.Refusal{Cause: refusal.HandleClosedWhileWaiting}
		}
		f.offers.askLog(w)
		mu.pause(4) // it makes and hands over a proposal
	}
}
