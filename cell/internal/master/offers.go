package master

import (
	"cmp"
	"context"
	"slices"

	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// offers hands locks to waiters: it names them in commands, and withdraws that if a command did not grant the
// lock.
type offers struct {
	epoch  *epoch
	queues *tables.Queues
	delays *tables.Delays
	outbox *tables.Outbox
	events *publisher
}

// closeEnded records that a Close is no longer on its way. If requests still wait through the handle, it
// tells the lock's holders again, because some may be new.
func (o *offers) closeEnded(mu hold, c *raftfsm.Close) {
	by := namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
	if !o.queues.EndClosing(by) {
		return
	}
	var lock namespace.Ref
	for w := range o.queues.OfHandle(by) {
		if w.Refusal == nil {
			o.outbox.PutRequest(w)
			o.outbox.PutLock(w.Lock.Name)
			lock, w.Told = w.Lock, false
		}
		mu.pause(1)
	}
	o.events.tellConflicts(mu, lock, nil)
}

// successorsOf offers a node's lock to its first waiters, in a command that frees it, as frees finds in the
// state. Otherwise any client could ask for the release of others' locks, and its command would take the
// waiters from the one that does hand the lock over. epoch.mu is held.
func (o *offers) successorsOf(lock namespace.Ref, frees func(*namespace.Node) bool) []raftfsm.Succession {
	lead := o.queues.Leading(lock, 0)
	if len(lead) == 0 { // mostly; frees may look at very many holders
		return nil
	}
	//mutant: if node, err := o.epoch.state().Tree.Resolve(lock); err != nil || node == nil {
	if node, err := o.epoch.state().Tree.Resolve(lock); err != nil || !frees(node) {
		return nil
	}
	return []raftfsm.Succession{{Lock: lock, Claims: o.offer(lead)}}
}

// propose proposes the command that build makes, and waits for its result, with an error of the answer as its
// error. One hold makes it and hands it over: its successors are on their way before others look, if build
// pauses only before it names them.
func (o *offers) propose(ctx context.Context, build func(mu hold) raftfsm.Command) (raftfsm.Result, error) {
	mu := o.epoch.mu.holdPatiently()
	c := build(mu)
	//mutant: one := newProposal(c, o.epoch.state().Level, c.EndSessions != nil, nil)
	one := newProposal(c, o.epoch.state().Level, false, nil)
	one.request = steps.RequestOf(ctx)
	err := o.epoch.handOver(one)
	if err != nil && c.Close != nil {
		o.closeEnded(mu, c.Close)
	}
	mu.end()
	if err != nil {
		return raftfsm.Result{}, err
	}
	result, err := o.epoch.await(ctx, one)
	return result, cmp.Or(err, result.Answer.Err())
}

// endDelay proposes the end of an expired lock-delay, unless the name has a later one. epoch.mu is held.
func (o *offers) endDelay(c raftfsm.EndDelay) {
	tree := o.epoch.state().Tree
	if d, ok := tree.Delay(c.Name); !ok || d.ID != c.ID {
		return
	}
	if node, ok := tree.Get(c.Name); ok {
		if claims := o.offer(o.queues.Leading(node.Ref(), node.Mode)); len(claims) > 0 {
			c.Successions = []raftfsm.Succession{{Lock: node.Ref(), Claims: claims}}
		}
	}
	o.epoch.submit(raftfsm.Command{EndDelay: &c})
}

// endCommand ends the first sessions, as many as fit in one command, with successors for their locks; rest is
// for the next. The observer of the end offers other locks. epoch.mu is held, and the same hold has to hand
// the command over: its waiters are marked as offered.
func (o *offers) endCommand(ends []raftfsm.End) (c raftfsm.Command, rest []raftfsm.End) {
	part := firstPart(ends, o.queues.Claims, func(e raftfsm.End) int { return raftfsm.Size(e) })
	return raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: part, Successions: o.successions(part)}}, ends[len(part):]
}

// successions names successors for the locks of ending sessions, as far as one command has room. epoch.mu is
// held.
func (o *offers) successions(ends []raftfsm.End) []raftfsm.Succession {
	var list []raftfsm.Succession
	tree, bytes, visited := o.epoch.state().Tree, 0, 0
	for _, end := range ends {
		for node := range tree.OwnedBy(end.Session) {
			if visited += o.queues.StepsOf(node.Name); visited > maxOwned {
				return list
			}
			lead := o.queues.Leading(node.Ref(), 0)
			if len(lead) == 0 {
				continue
			}
			//mutant: if !slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == end.Session || true }) {
			if !slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == end.Session }) {
				continue // it only has the ephemeral node open
			}
			bytes += raftfsm.Size(node.Ref())
			for _, w := range lead {
				bytes += w.Size
			}
			if len(list) > 0 && bytes > o.queues.Claims {
				return list
			}
			list = append(list, raftfsm.Succession{Lock: node.Ref(), Claims: o.offer(lead)})
		}
	}
	return list
}

// maxOwned bounds the nodes that the sessions of one entry own together, unless it ends only one session.
const maxOwned = 1024
